#include "base/input.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int pl_input_open(const char *path, const char **wrong) {
    /* O_NONBLOCK: opening a pipe must not wait for its writer */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;
    if (fd < 0) {
        *wrong = strerror(errno);
        return -1;
    }
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) return fd;
    close(fd);
    *wrong = "it is not a plain file";
    return -1;
}

FILE *pl_input_file(const char *path, const char **wrong) {
    int fd = pl_input_open(path, wrong);
    FILE *f = fd >= 0 ? fdopen(fd, "r") : NULL;
    if (fd >= 0 && !f) {
        *wrong = strerror(errno);
        close(fd);
    }
    return f;
}
