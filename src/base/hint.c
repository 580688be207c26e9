#include "base/hint.h"

#include <stdio.h>
#include <string.h>

/* `typed` is the whole word, or '*' and its ending. In `instead`, "%s" is the word. */
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
    {"option", "num-workers", "--workers"},
    {"option", "nproc", "--workers"},
    {"option", "nproc-per-node", "--workers"},
    {"option", "world-size", "--workers"},
    {"option", "np", "--workers"},
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
    {"option", "arch", "--model"},
    {"option", "network", "--model"},
    {"option", "hidden", "--model mlp:hidden=256"},
    {"option", "algorithm", "--method"},
    {"option", "strategy", "--method"},
    {"option", "k", "--method kasync:k=2"},
    {"option", "staleness", "--method ssp:s=3"},
    {"option", "backend", "--transport"},
    {"option", "accuracy", "--target-accuracy"},
    {"option", "loss", "--target-loss"},
    {"option", "logdir", "--log-dir"},
    {"option", "tensorboard", "--log-dir"},
    {"option", "save", "--checkpoint"},
    {"option", "save-dir", "--checkpoint"},
    {"option", "checkpoint-dir", "--checkpoint"},
    {"option", "random-seed", "--seed"},
    {"option", "straggler", "--delay 'hetero:slow=1,by=5,exp:mean=1'"},
    {"option", "byzantine", "--attack"},
    {"method", "sgd", "--optim sgd"},
    {"method", "adam", "--optim adam"},
    {"method", "adamw", "--optim adamw"},
    {"method", "adagrad", "--optim adagrad"},
    {"method", "momentum", "--optim momentum"},
    {"method", "nesterov", "--optim nesterov"},
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
    {"data", "*.csv", "--data csv:%s"},
    {"data", "*.tsv", "--data csv:%s"},
    {"data", "*.npy", "--data npy:%s,labels=FILE"},
    {"data", "*.svm", "--data libsvm:%s"},
    {"data", "*.libsvm", "--data libsvm:%s"},
    {"model", "logistic", "--model softmax"},
    {"model", "resnet", "--model cnn (a ResNet of PyTorch: docs/from-ddp.md)"},
    {"model", "transformer", "a model of PyTorch: docs/from-ddp.md"},
    {"delay", "normal", "--delay lognormal"},
    {"delay", "uniform", "--delay trace:FILE"},
};

static bool hint_is(const struct hint *h, const char *word) {
    size_t n = strlen(word), ending = strlen(h->typed + 1);
    if (h->typed[0] != '*') return strcmp(h->typed, word) == 0;
    return n > ending && strcmp(word + n - ending, h->typed + 1) == 0;
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
