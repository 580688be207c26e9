#define _GNU_SOURCE
#include "awkward.h"

#include <unistd.h>

#include "opened.h"

struct pl_data *awkward_ratings(bool twice, uint64_t seed) {
    const char *tmp = getenv("TMPDIR");
    char spec[400], *path = spec + sizeof "ratings:" - 1;
    snprintf(spec, sizeof spec, "ratings:%s/paceline-mf-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    int fd = mkstemp(path);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    assert_non_null(file);
    for (int user = 0; user < 2000; user++)
        for (int i = 0; i <= user % 7; i++) {
            int item = (user * 5 + (twice && i % 3 == 2 ? i - 1 : i) * 3) % 40;
            if (user % 351 >= 5 + user / 351 % 2) item = 30 + item / 4;
            fprintf(file, "%d %d %d\n", user, item, 1 + (user + i * i) % 5);
        }
    assert_int_equal(fclose(file), 0);
    size_t n = strlen(spec);
    snprintf(spec + n, sizeof spec - n, ",test=0,shuffle=no");
    struct pl_data *d = open_data(spec, seed);
    spec[n] = 0;
    assert_int_equal(unlink(path), 0);
    return d;
}
