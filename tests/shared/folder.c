#define _GNU_SOURCE
#include "folder.h"

#include <dirent.h>
#include <unistd.h>

#include "test.h"

char folder[200];

int folder_make(void **state) {
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/paceline-test-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

int folder_remove(void **state) {
    return rmdir(folder);
}

int folder_clear(void **state) {
    folder_empty(folder);
    return folder_remove(state);
}

int folder_end(const char *const *names, size_t n) {
    for (size_t i = 0; i < n; i++) unlink(folder_path(names[i]));
    return rmdir(folder);
}

const char *folder_path(const char *name) {
    static char path[4][700];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

void folder_write(const char *name, const void *bytes, size_t n) {
    FILE *f = fopen(folder_path(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

size_t folder_read(const char *name, void *bytes, size_t max) {
    FILE *f = fopen(folder_path(name), "rb");
    assert_non_null(f);
    size_t n = fread(bytes, 1, max, f);
    assert_int_equal(fclose(f), 0);
    return n;
}

int folder_count(const char *path) {
    DIR *d = opendir(path);
    int n = 0;
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] != '.';
    closedir(d);
    return n;
}

void folder_empty(const char *path) {
    DIR *d = opendir(path);
    char name[1600];
    if (!d) return;
    for (struct dirent *e; (e = readdir(d));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        snprintf(name, sizeof name, "%s/%s", path, e->d_name);
        if (remove(name)) {
            folder_empty(name);
            remove(name);
        }
    }
    closedir(d);
}
