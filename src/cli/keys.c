/* paceline keys: the certificates of a server and its workers. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

int cli_keys(int argc, char **argv) {
    const char *out = NULL, *host = NULL, *name = "worker", *days = "365";
    const struct cli_flag flags[] = {
        {"out", "DIR", "folder for them", NULL, &out},
        {"host", "HOST,...", "names and addresses of the server (default: this machine's loopback)",
         NULL, &host},
        {"name", "NAME", "name of the worker, for logs (default: worker)", NULL, &name},
        {"days", "N", "how long they are valid (default: 365)", NULL, &days},
        {NULL, NULL, NULL, NULL, NULL}};
    struct cli_args args = {
        .command = "keys",
        .brief = "make the certificates of a server and its workers",
        .usage = "keys --out DIR [--host HOST,...] [--name NAME] [--days N]",
        .flag = flags,
        .notes = "DIR gets an authority (ca), a server and a worker; use it with serve --keys and "
                 "work --keys.\n"
                 "If DIR has an authority already, DIR/NAME gets the certificate of one more "
                 "worker: copy\n"
                 "that folder to its machine. Only ca-key.pem can make more; keep it to yourself. "
                 "A file\n"
                 "DIR/allowed with one name per line limits who may join. Examples:\n\n"
                 "  paceline keys --out keys --host server.lab,10.0.0.7\n"
                 "  paceline keys --out keys --name alice\n"};
    pl_setup *setup;
    char why[400] = "", *end;
    if (pl_setup_new(&setup)) return cli_fail(CLI_FAILED, "out of memory");
    int status = cli_parse(&args, argc, argv, setup);
    if (status == CLI_OK && !args.helped) {
        long n = strtol(days, &end, 10);
        if (!out)
            status = cli_fail(CLI_USAGE, "keys needs a folder: paceline keys --out DIR");
        else if (*end || n < 1 || n > 36500)
            status = cli_fail(CLI_USAGE, "days is a whole number from 1 to 36500");
        else {
            int rc = pl_keys(out, host, name, (int)n, why, sizeof why);
            if (rc) status = cli_fail(rc, "%s", why);
        }
    }
    pl_setup_free(setup);
    return status;
}
