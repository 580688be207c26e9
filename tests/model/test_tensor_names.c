/* The named tensors of every model cover its vector, and rows of weights are outputs. */
#include "opened.h"

static const struct {
    const char *model, *data, *parts;
} part_cases[] = {
    {"quadratic:dim=12", NULL, "weights[12] "},
    {"softmax", "blobs:dim=6,classes=3,samples=9,test=0", "layer1.weight[3,6] layer1.bias[3] "},
    {"linear", "friedman:samples=9,test=0", "layer1.weight[1,10] layer1.bias[1] "},
    {"mlp:hidden=5,4", "blobs:dim=6,classes=3,samples=9,test=0",
     "layer1.weight[5,6] layer1.bias[5] layer2.weight[4,5] layer2.bias[4] layer3.weight[3,4] "
     "layer3.bias[3] "},
    {"cnn:filters=3,4,kernel=5,dense=7", "digits:samples=10,test=0,side=12",
     "conv1.weight[3,5,5,1] conv1.bias[3] conv2.weight[4,5,5,3] conv2.bias[4] layer1.weight[7,36] "
     "layer1.bias[7] layer2.weight[10,7] layer2.bias[10] "},
    {"external:dim=7", NULL, "weights[7] "},
    {"mf:k=6", "lowrank:users=5,items=4,ratings=9", "users[5,12] items[4,12] "},
};

#define N_PART_CASES (sizeof part_cases / sizeof *part_cases)

TEST(parts_cover_every_model) {
    for (const struct pl_entry *const *e = pl_model_family.table; *e; e++) {
        size_t n = strlen((*e)->name), found = 0;
        for (size_t i = 0; i < N_PART_CASES; i++)
            found += strncmp(part_cases[i].model, (*e)->name, n) == 0;
        if (!found) fail_msg("model %s has no case here", (*e)->name);
    }
    for (size_t i = 0; i < N_PART_CASES; i++) {
        struct pl_data *data = part_cases[i].data ? open_data(part_cases[i].data, test_seed) : NULL;
        struct pl_model *m = open_model(part_cases[i].model, data);
        struct pl_model_tensor part;
        char text[512] = "";
        size_t at = 0;
        int n = 0;
        for (; pl_model_tensor(m, n, &part); n++) {
            size_t size = 1;
            assert_int_equal(part.offset, at);
            pl_append(text, sizeof text, "%s[", part.name);
            for (int d = 0; d < part.n_dims; d++) {
                size *= part.shape[d];
                pl_append(text, sizeof text, d ? ",%d" : "%d", (int)part.shape[d]);
            }
            pl_append(text, sizeof text, "] ");
            at += size;
        }
        assert_int_equal(at, m->dim);
        assert_string_equal(text, part_cases[i].parts);
        assert_false(pl_model_tensor(m, n + 1, &part));
        assert_false(pl_model_tensor(m, -1, &part));
    }
}

/* [out, in] is the truth: a class whose row of weights is the sample itself wins. */
TEST(rows_of_weights_are_outputs) {
    struct pl_data *data = open_data("blobs:dim=6,classes=3,samples=9,test=0", test_seed);
    struct pl_model *m = open_model("softmax", data);
    struct pl_model_tensor part;
    assert_true(pl_model_tensor(m, 0, &part));
    const uint32_t index = 0;
    float x[6], *w = own_room(m->dim, sizeof *w),
                *scratch = calloc(m->kind->scratch(m, 1), sizeof *w);
    uint16_t label;
    pl_data_rows(data, false, &index, 1, x, &label);
    for (uint16_t c = 0; c < 3; c++) {
        memset(w, 0, m->dim * sizeof *w);
        memcpy(w + part.offset + c * part.shape[1], x, sizeof x);
        struct pl_batch batch = {.n = 1, .x = x, .label = &c};
        double loss = 0;
        uint32_t n_right = 0;
        m->kind->score(m, w, &batch, scratch, &loss, &n_right, NULL);
        assert_int_equal(n_right, 1);
    }
    free(scratch);
}
