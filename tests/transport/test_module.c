/* MPI is loaded when it is asked for: a program that trains on threads and processes does not map
 * it. The sentences about a missing or foreign module: install.sh. */
#include "suite_train.h"
#include "sys/module.h"
#include "transport/mpi_module.h"

/* Whether this process has mapped a file whose name contains `name`. */
static bool mapped(const char *name) {
    char line[1024];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "r");
    if (!maps) skip();
    while (fgets(line, sizeof line, maps)) found |= strstr(line, name) != NULL;
    fclose(maps);
    return found;
}

TEST(training_does_not_load_mpi) {
    static const char *const where[] = {"spawn=threads", "spawn=processes", "transport=auto"};
    assert_true(mapped("libc"));
    for (size_t i = 0; i < sizeof where / sizeof *where; i++) {
        pl_setup *s = make("model=quadratic method=sync workers=2 updates=5 %s", where[i]);
        train(s);
        if (mapped("libmpi") || mapped("libmpich") || mapped("paceline-mpi"))
            fail_msg("%s: MPI is mapped", where[i]);
    }
    assert_null(pl_mpi_transport());
}

TEST(the_module_is_found) {
    const struct pl_mpi_layout ours = PL_MPI_LAYOUT;
    const char *mpiexec = getenv("MPIEXEC"), *sanitize = getenv("SANITIZE");
    char error[300];
    /* at dlopen() the thread sanitizer counts OpenBLAS, which a suppression names, twice, and ends
     */
    if (sanitize && strstr(sanitize, "thread")) skip();
    assert_null(pl_module_load("libpaceline-no-such.so", PL_MPI_SYMBOL, error, sizeof error));
    assert_non_null(strstr(error, "libpaceline-no-such.so"));
    if (!mpiexec || !*mpiexec) skip(); /* built without MPI */
    const struct pl_mpi_module *m = pl_module_load(PL_MPI_FILE, PL_MPI_SYMBOL, error, sizeof error);
    if (!m) fail_msg("%s", error);
    assert_true(mapped("paceline-mpi"));
    assert_string_equal(m->version, PL_VERSION);
    assert_memory_equal(&m->layout, &ours, sizeof ours);
    assert_null(pl_module_load(PL_MPI_FILE, "no_such_symbol", error, sizeof error));
    assert_non_null(strstr(error, "no_such_symbol"));
}

ALL_TESTS_FROM_SEED(3, folder_make, folder_clear)
