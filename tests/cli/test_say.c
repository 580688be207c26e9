/* Messages of several threads, such as those of a server's connections, are whole lines. */
#include "cli/args.c"
#include "cli/text.c"

#include <pthread.h>

#include "test.h"

#define SAY_THREADS 4
#define SAY_LINES 2000

static void *say_lines(void *name) {
    for (int i = 0; i < SAY_LINES; i++) cli_say(name, PL_WARNING, "a worker joined");
    return NULL;
}

TEST(messages_of_threads_do_not_mix) {
    static char name[SAY_THREADS][2] = {"a", "b", "c", "d"};
    static char buffer[BUFSIZ];
    pthread_t thread[SAY_THREADS];
    int count[SAY_THREADS] = {0};
    FILE *file = tmpfile(), *standard = stderr;
    assert_non_null(file);
    setvbuf(file, buffer, _IOLBF, sizeof buffer); /* as main() has it */
    stderr = file;
    for (int t = 0; t < SAY_THREADS; t++)
        assert_int_equal(pthread_create(&thread[t], NULL, say_lines, name[t]), 0);
    for (int t = 0; t < SAY_THREADS; t++) pthread_join(thread[t], NULL);
    stderr = standard;
    rewind(file);
    for (char line[100]; fgets(line, sizeof line, file);) {
        char who = '?';
        int end = 0;
        sscanf(line, "paceline: warning: %c: a worker joined%n", &who, &end);
        if (who < 'a' || who > 'd' || end == 0 || strcmp(line + end, "\n") != 0)
            fail_msg("mixed: %s", line);
        count[who - 'a']++;
    }
    for (int t = 0; t < SAY_THREADS; t++) assert_int_equal(count[t], SAY_LINES);
    fclose(file);
}
