/* A program that embeds Paceline, as far as tests/install.sh needs one; C and C++ alike. */
#include <stdio.h>
#include <string.h>

#include <paceline.h>

int main(void) {
    const char *text = pl_status_text(PL_ENOMEM);
    printf("paceline %s: %s\n", PL_VERSION, text);
    return strlen(text) > 0 ? 0 : 1;
}
