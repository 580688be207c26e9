#include "base/hint.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/status.h"
#include "paceline_policy.h" /* PL_NAME_MAX */

#define HINT_NAMES 160 /* bytes of a list of names in a message */

/* `typed` is the whole word, '*' and its ending, or '#' for a number with or without a unit. In
 * `instead`, "%s" is the word. */
static const struct hint {
    const char *kind, *typed, *instead;
} hints[] = {
    {"option", "learning-rate", "--lr"},
    {"option", "learning_rate", "--lr"},
    {"option", "step-size", "--lr"},
    {"option", "optimizer", "--optim"},
    {"option", "momentum", "--optim momentum:beta=0.9"},
    {"option", "nesterov", "--optim nesterov"},
    {"option", "adam", "--optim adam"},
    {"option", "sgd", "--optim sgd"},
    {"option", "beta", "--optim momentum:beta=0.9"},
    {"option", "scheduler", "--lr-schedule"},
    {"option", "lr-scheduler", "--lr-schedule"},
    {"option", "warmup", "--lr-schedule warmup:over=5"},
    {"option", "decay", "--weight-decay"},
    {"option", "wd", "--weight-decay"},
    {"option", "l2", "--weight-decay"},
    {"option", "batch-size", "--batch"},
    {"option", "batch_size", "--batch"},
    {"option", "batchsize", "--batch"},
    {"option", "num-workers", "--workers"},
    {"option", "nproc", "--workers"},
    {"option", "nproc-per-node", "--workers"},
    {"option", "world-size", "--workers"},
    {"option", "np", "--workers"},
    {"option", "n", "--workers"},
    {"option", "steps", "--updates"},
    {"option", "max-steps", "--updates"},
    {"option", "iterations", "--updates"},
    {"option", "iters", "--updates"},
    {"option", "epoch", "--epochs"},
    {"option", "duration", "--time"},
    {"option", "timeout", "--time"},
    {"option", "max-time", "--time"},
    {"option", "dataset", "--data"},
    {"option", "data-dir", "--data"},
    {"option", "train-data", "--data csv:FILE,test=FILE"},
    {"option", "val-split", "--data csv:FILE,share=0.2, which holds out that share of the rows"},
    {"option", "shuffle", "--sampling epoch, which draws batches in shuffled passes"},
    {"option", "arch", "--model"},
    {"option", "network", "--model"},
    {"option", "hidden", "--model mlp:hidden=256"},
    {"option", "algorithm", "--method"},
    {"option", "strategy", "--method"},
    {"option", "methods", "--method; a race takes several as words: paceline race sync async"},
    {"option", "k", "--method kasync:k=2"},
    {"option", "staleness", "--method ssp:s=3"},
    {"option", "backend", "--transport"},
    {"option", "accuracy", "--target-accuracy"},
    {"option", "accuracy-target", "--target-accuracy"},
    {"option", "loss-target", "--target-loss"},
    {"option", "loss", "--target-loss to end at a loss; --model decides which loss it is"},
    {"option", "logdir", "--log-dir"},
    {"option", "tensorboard", "--log-dir"},
    {"option", "save", "--checkpoint"},
    {"option", "save-dir", "--checkpoint"},
    {"option", "checkpoint-dir", "--checkpoint"},
    {"option", "load", "--resume"},
    {"option", "output",
     "--checkpoint DIR for weights, --log-dir DIR for curves; race, predict and report have --out"},
    {"option", "random-seed", "--seed"},
    {"option", "straggler", "--delay 'hetero:slow=1,by=5,exp:mean=1'"},
    {"option", "byzantine", "--attack"},
    {"option", "verbose", "--log FILE or --events FILE; it has --quiet for less"},
    {"option", "debug", "--events FILE, a log of every event"},
    {"option", "device",
     "a worker program of your own, which decides where it computes: docs/from-ddp.md"},
    {"option", "gpu",
     "a worker program of your own, which decides where it computes: docs/from-ddp.md"},
    {"option", "gpus",
     "a worker program of your own, which decides where it computes: docs/from-ddp.md"},
    {"option", "cuda",
     "a worker program of your own, which decides where it computes: docs/from-ddp.md"},
    {"option", "num-epochs", "--epochs"},
    {"option", "resume-from", "--resume"},
    {"option", "data-path", "--data"},
    {"option", "clip", "--max-norm"},
    {"option", "grad-clip", "--max-norm"},
    {"option", "clip-grad-norm", "--max-norm"},
    {"option", "max-grad-norm", "--max-norm"},
    {"option", "log-interval", "--eval-every"},
    {"option", "print-freq", "--eval-every"},
    {"option", "host", "--listen HOST:PORT"},
    {"option", "port", "--listen HOST:PORT"},
    {"method", "ddp", "--method sync"},
    {"method", "allreduce", "--method sync"},
    {"method", "bsp", "--method sync"},
    {"method", "asgd", "--method async"},
    {"method", "hogwild", "--method async"},
    {"method", "fedavg", "--method local-sgd"},
    {"method", "median", "--method byzantine-median"},
    {"optim", "rmsprop", "--optim adam"},
    {"data", "mnist", "--data idx:DIR, where DIR has the four files of MNIST"},
    {"data", "fashion-mnist", "--data fashion"},
    {"data", "fashionmnist", "--data fashion"},
    {"data", "cifar", "--data cifar10:DIR"},
    {"data", "movielens", "--data ratings:FILE --model mf --method fpsgd"},
    {"data", "*.parquet", "--data csv:FILE; files of Parquet are not read"},
    {"data", "*.csv", "--data csv:%s"},
    {"data", "*.tsv", "--data csv:%s"},
    {"data", "*.npy", "--data npy:%s,labels=FILE"},
    {"data", "*.npz",
     "--data npy:X.npy,labels=Y.npy; save each array of the archive with numpy.save"},
    {"data", "*.svm", "--data libsvm:%s"},
    {"data", "*.libsvm", "--data libsvm:%s"},
    {"model", "logistic", "--model softmax"},
    {"model", "resnet", "--model cnn (a ResNet of PyTorch: docs/from-ddp.md)"},
    {"model", "resnet18", "--model cnn (a ResNet of PyTorch: docs/from-ddp.md)"},
    {"model", "resnet34", "--model cnn (a ResNet of PyTorch: docs/from-ddp.md)"},
    {"model", "resnet50", "--model cnn (a ResNet of PyTorch: docs/from-ddp.md)"},
    {"model", "resnet101", "--model cnn (a ResNet of PyTorch: docs/from-ddp.md)"},
    {"model", "transformer", "a model of PyTorch: docs/from-ddp.md"},
    {"delay", "normal", "--delay lognormal"},
    {"delay", "#", "--delay const:t=%s"},
    {"delay", "uniform", "--delay trace:FILE"},
    {"key", "momentum", "--optim momentum:beta=0.9"},
    {"key", "nesterov", "--optim nesterov"},
    {"key", "lr", "--lr"},
    {"key", "weight_decay", "--weight-decay"},
    {"command", "resume", "paceline train --checkpoint DIR --resume auto"},
    {"command", "continue", "paceline train --checkpoint DIR --resume auto"},
    {"command", "run", "paceline train"},
    {"command", "fit", "paceline train"},
    {"command", "evaluate", "paceline eval"},
    {"command", "test", "paceline eval"},
    {"command", "compare", "paceline race"},
    {"command", "benchmark", "paceline race"},
    {"command", "torchrun", "paceline launch"},
};

/* Tells whether a word is a number, such as 0.02 or 20ms. */
static bool hint_is_number(const char *word) {
    size_t n = strspn(word, "0123456789."), letters = 0;
    while (isalpha((unsigned char)word[n + letters])) letters++;
    return isdigit((unsigned char)word[word[0] == '.']) && word[n + letters] == '\0';
}

static bool hint_is(const struct hint *h, const char *word) {
    if (h->typed[0] == '#') return hint_is_number(word);
    size_t n = strlen(word), ending = strlen(h->typed + 1);
    if (h->typed[0] != '*') return strcasecmp(h->typed, word) == 0;
    return n > ending && strcasecmp(word + n - ending, h->typed + 1) == 0;
}

bool pl_hint_find(const char *kind, const char *word, char *out, size_t max) {
    for (size_t i = 0; i < sizeof hints / sizeof *hints; i++) {
        const struct hint *h = &hints[i];
        if (strcmp(h->kind, kind) != 0 || !hint_is(h, word)) continue;
        const char *at = strstr(h->instead, "%s");
        if (at)
            snprintf(out, max, "%.*s%.200s%s", (int)(at - h->instead), h->instead, word, at + 2);
        else
            snprintf(out, max, "%s", h->instead);
        return true;
    }
    return false;
}

static bool hint_same(char a, char b) {
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* Edit distance: an insertion, a deletion, a substitution and a swap of two neighbours cost 1. The
 * case of letters does not count. */
static size_t hint_distance(const char *a, const char *b) {
    size_t before[PL_NAME_MAX + 1], last[PL_NAME_MAX + 1] = {0}, row[PL_NAME_MAX + 1];
    size_t nb = strlen(b);
    if (nb > PL_NAME_MAX) return SIZE_MAX;
    for (size_t j = 0; j <= nb; j++) row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        memcpy(before, last, sizeof before);
        memcpy(last, row, sizeof last);
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            size_t best = last[j - 1] + !hint_same(a[i - 1], b[j - 1]);
            if (last[j] + 1 < best) best = last[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            bool swapped =
                i > 1 && j > 1 && hint_same(a[i - 1], b[j - 2]) && hint_same(a[i - 2], b[j - 1]);
            if (swapped && before[j - 2] + 1 < best) best = before[j - 2] + 1;
            row[j] = best;
        }
    }
    return row[nb];
}

/* Whether two words have different digits and nothing else: cifar100 is not cifar10 mistyped. */
static bool hint_other_digits(const char *a, const char *b) {
    static const char digits[] = "0123456789";
    if (!strpbrk(a, digits) || !strpbrk(b, digits) || strcasecmp(a, b) == 0) return false;
    for (;; a++, b++) {
        a += strspn(a, digits);
        b += strspn(b, digits);
        if (!*a || !hint_same(*a, *b)) return *a == *b;
    }
}

const char *pl_nearest(const char *word, const char *const *names, size_t n) {
    const char *best = NULL;
    size_t least = strlen(word) / 3 + 1; /* no hint is better than a wrong one */
    if (least < 2) least = 2;
    for (size_t i = 0; i < n; i++) {
        size_t d = hint_distance(word, names[i]);
        size_t length = strlen(names[i]);
        if (strncasecmp(word, names[i], strlen(word)) == 0 && strlen(word) > 1) d = 1;
        if (strncasecmp(word, names[i], length) == 0 && length > 2)
            d = 1; /* "exponential" for exp */
        size_t longer = length > strlen(word) ? length : strlen(word);
        if (d >= longer || hint_other_digits(word, names[i])) continue; /* nothing in common */
        if (d < least) {
            least = d;
            best = names[i];
        }
    }
    return best;
}

/* Returns how many of the n letters of a unit of time its short form has: 1 for "minutes", 2 for
 * "ms". Returns 0 if the word is not such a unit. */
static size_t hint_unit(const char *word, size_t n) {
    static const char *const words[] = {"sec", "min", "hour", "hr", "day"};
    if (n == 1 || (n == 2 && strncmp(word, "ms", 2) == 0)) return n;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (n >= strlen(words[i]) && strncmp(word, words[i], strlen(words[i])) == 0) return 1;
    return 0;
}

bool pl_hint_unspaced(const char *text, char *out, size_t max) {
    *out = '\0';
    if (!strchr(text, ' ')) return false;
    while (*text) {
        size_t digits = strspn(text, "0123456789."), letters = 0;
        const char *unit = text + digits + strspn(text + digits, " ");
        while (isalpha((unsigned char)unit[letters])) letters++;
        size_t stay = hint_unit(unit, letters);
        if (digits == 0 || stay == 0 || strlen(out) + digits + stay >= max) return false;
        pl_append(out, max, "%.*s%.*s", (int)digits, text, (int)stay, unit);
        text = unit + letters + strspn(unit + letters, " ");
    }
    return true;
}

bool pl_hint_names(char *out, size_t max, const char *words, const char *const *names, size_t n) {
    char all[HINT_NAMES] = "";
    for (size_t i = 0; i < n; i++) pl_append(all, sizeof all, "%s%s", i ? ", " : "", names[i]);
    if (n == 0 || strlen(all) + 1 == sizeof all) return false;
    pl_append(out, max, "%s %s", words, all);
    return true;
}
