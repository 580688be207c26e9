/* What people and other programs write as text: options, specs, scripts, traces. */
#include <stdlib.h>
#include <string.h>

#include "api/setup.h"
#include "base/chain.h"
#include "core/rule.h"
#include "data/data.h"
#include "fuzz.h"
#include "model/model.h"
#include "sim/script.h"
#include "timing/delay.h"
#include "timing/measured.h"

static char *text_of(const uint8_t *data, size_t n) {
    char *text = malloc(n + 1);
    FUZZ_MUST(text != NULL);
    memcpy(text, data, n);
    text[n] = '\0';
    return text;
}

static void script(const uint8_t *data, size_t n) {
    struct pl_script s;
    struct pl_why why = {.text = ""};
    if (pl_script_read(fuzz_file(0, data, n), 5, &s, &why)) {
        FUZZ_MUST(why.text[0]);
        return;
    }
    for (size_t i = 0; i < s.n; i++) FUZZ_MUST(s.line[i].worker >= 0 && s.line[i].worker < 5);
    pl_script_free(&s);
}

static void trace(const uint8_t *data, size_t n) {
    struct pl_measured *m = NULL;
    struct pl_why why = {.text = ""};
    if (pl_measured_trace(fuzz_file(0, data, n), &m, &why)) {
        FUZZ_MUST(why.text[0]);
        return;
    }
    for (uint32_t w = 0; w < pl_measured_workers(m); w++) {
        struct pl_sample s = pl_measured_of(m, w);
        FUZZ_MUST(s.n > 0 && s.ascending[0] >= 0 && s.mean >= 0);
    }
    pl_measured_free(m);
}

/* Lines key=value, as on the command line and in recordings and checkpoints. */
static void options(const uint8_t *data, size_t n) {
    pl_setup *s = NULL;
    char *text = text_of(data, n), *again = NULL, value[PL_SPEC_MAX];
    FUZZ_MUST(pl_setup_new(&s) == 0);
    if (pl_setup_lines(s, text) == 0) {
        for (const struct pl_opt *o = pl_setup_opts; o->name; o++)
            FUZZ_MUST(pl_setup_get(s, o->name, value, sizeof value) == 0);
        if (pl_setup_text(s, &again) == 0) free(again);
    }
    char *equal = strchr(text, '=');
    if (equal) {
        *equal = '\0';
        pl_setup_set(s, text, equal + 1);
    }
    pl_setup_free(s);
    free(text);
}

/* The first byte chooses a family; the rest is "name:option=value,…". */
static void spec(const uint8_t *data, size_t n) {
    static const struct pl_family *const family[] = {
        &pl_policy_family, &pl_data_family,  &pl_model_family,    &pl_filter_family,
        &pl_optim_family,  &pl_delay_family, &pl_partition_family};
    struct fuzz_piece rest = {data, n};
    size_t which = (size_t)fuzz_number(&rest, 1) % (sizeof family / sizeof *family);
    int n_workers = 1 + (int)fuzz_number(&rest, 1);
    char *text = text_of(rest.data, rest.n), printed[PL_SPEC_MAX];
    const struct pl_entry *entry = NULL;
    void *conf = NULL;
    struct pl_why why = {.text = ""};
    if (pl_spec_parse(family[which], text, n_workers, &entry, &conf, &why) == 0) {
        pl_spec_print(entry, conf, printed, sizeof printed);
        free(conf);
        /* what it prints means the same */
        if (strlen(printed) + 1 < sizeof printed) {
            FUZZ_MUST(pl_spec_parse(family[which], printed, n_workers, &entry, &conf, &why) == 0);
            free(conf);
        }
    } else {
        FUZZ_MUST(why.text[0]);
    }
    free(text);
}

static void delay(const uint8_t *data, size_t n) {
    char *text = text_of(data, n);
    struct pl_delay *d = NULL;
    struct pl_why why = {.text = ""};
    /* no files: they have targets of their own */
    if (!strstr(text, "trace") && !strstr(text, "recording") &&
        pl_delay_open(text, 4, 1, &d, &why) == 0) {
        for (uint32_t w = 0; w < 4; w++) {
            double t = pl_delay_draw(d, 1, w, 1, 1);
            FUZZ_MUST(t >= 0);
        }
        pl_delay_free(d);
    }
    free(text);
}

const struct fuzz_target fuzz_texts[] = {{"script", script}, {"trace", trace}, {"options", options},
                                         {"spec", spec},     {"delay", delay}, {NULL, NULL}};
