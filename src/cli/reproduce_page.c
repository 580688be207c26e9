/* What is said about claims: a table on standard output, and in the folder a JSON object and a page
 * of HTML with the same content. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>

#include "reproduce.h"

#define PAGE_WORDS 96
#define PAGE_BEGIN "<!doctype html><html lang='en'><meta charset='utf-8'><title>Claims, "
#define PAGE_OBJECT "{\n \"form\": \""

void cli_setting_command(const struct reproduce *p, const struct claim_setting *s, char *out,
                         size_t max) {
    const char *const text[] = {s->program ? "" : "paceline", s->program ? s->program : s->race,
                                s->form[p->form]};
    *out = '\0';
    for (int i = 0; i < 3; i++) {
        const char *word = text[i] ? text[i] : "";
        for (size_t n; *(word += strspn(word, " ")); word += n) {
            n = strcspn(word, " ");
            if (*out) cli_append(out, max, " ");
            cli_append_word(out, max, word, n);
        }
    }
}

/* --- the table --------------------------------------------------------------------------- */

void cli_reproduce_table(const struct reproduce *p) {
    char words[PAGE_WORDS], ours[PAGE_WORDS];
    for (int i = 0; i < p->claims.n_claims; i++) {
        const struct claim *c = &p->claims.claim[i];
        if (!p->wanted[i]) continue;
        int seeds = 0;
        enum verdict verdict = cli_claim_verdict(p, c, &seeds);
        cli_verdict_words(verdict, seeds, words, sizeof words);
        const char *missing = cli_claim_missing(p, c);
        if (missing) {
            printf("%s: not run: %s\n", c->name, missing);
            continue;
        }
        printf("%s: %s%s\n", c->name, words,
               cli_claim_fails(p, c) ? ", which was expected to be shown" : "");
        fputs("    ", stdout);
        cli_wrap(4, 4, c->says);
        for (int j = 0; j < c->n_required; j++) {
            struct shown one = cli_shown(p, &c->required[j]);
            cli_verdict_words(one.verdict, one.ours.n, words, sizeof words);
            cli_shown_words(one.ours, ours, sizeof ours);
            printf("      %s: %s, %s\n", c->required[j].text, cli_signs(ours), words);
        }
    }
}

/* --- the object -------------------------------------------------------------------------- */

static json_t *page_real(double x) {
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *page_required(const struct reproduce *p, const struct claim_required *q) {
    static const char *const bound[] = {NULL, "at least", "at most"};
    struct shown one = cli_shown(p, q);
    char words[PAGE_WORDS], ours[PAGE_WORDS];
    cli_verdict_words(one.verdict, one.ours.n, words, sizeof words);
    cli_shown_words(one.ours, ours, sizeof ours);
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:i, s:s?}", "holds", q->text,
                     "run", one.run, "other", one.other, "verdict", words, "words", ours, "mean",
                     page_real(one.ours.mean), "half", page_real(one.ours.half), "low",
                     page_real(one.ours.low), "high", page_real(one.ours.high), "seeds", one.ours.n,
                     "bound", bound[one.ours.bound]);
}

static json_t *page_commands(const struct reproduce *p, const struct claim *c) {
    json_t *all = json_array();
    char command[REPRODUCE_COMMAND];
    for (int i = 0; i < p->claims.n_settings; i++) {
        const struct claim_setting *s = &p->claims.setting[i];
        if (!cli_claim_uses(&p->claims, c, s)) continue;
        cli_setting_command(p, s, command, sizeof command);
        json_array_append_new(all, json_string(command));
    }
    return all;
}

/* What the settings took that a claim uses, or all settings with results if it is NULL. */
static double page_seconds(const struct reproduce *p, const struct claim *c) {
    double sum = 0;
    for (int i = 0; i < p->claims.n_settings; i++) {
        const struct claim_setting *s = &p->claims.setting[i];
        if (c ? cli_claim_uses(&p->claims, c, s) : p->results[i] != NULL) sum += p->seconds[i];
    }
    return round(10 * sum) / 10;
}

/* The machine that results of other programs name; NULL: none does. */
static const char *page_elsewhere(const struct reproduce *p, const struct claim *c) {
    const char *machine = NULL;
    for (int i = 0; i < p->claims.n_settings; i++) {
        const json_t *first = json_array_get(p->results[i], 0);
        if (!cli_claim_uses(&p->claims, c, &p->claims.setting[i]) || machine) continue;
        machine = json_string_value(json_object_get(first, "machine"));
    }
    return machine;
}

static json_t *page_claim(const struct reproduce *p, const struct claim *c) {
    json_t *required = json_array();
    char words[PAGE_WORDS];
    int seeds = 0;
    enum verdict verdict = cli_claim_verdict(p, c, &seeds);
    cli_verdict_words(verdict, seeds, words, sizeof words);
    for (int j = 0; j < c->n_required; j++)
        json_array_append_new(required, page_required(p, &c->required[j]));
    return json_pack("{s:s, s:s, s:s, s:s, s:s?, s:s, s:b, s:o, s:o, s:o, s:s*}", "name", c->name,
                     "says", c->says, "paper", c->paper, "reports", c->reports, "note", c->note,
                     "verdict", words, "expected", c->expected[p->form], "required", required,
                     "commands", page_commands(p, c), "seconds", page_real(page_seconds(p, c)),
                     "machine", page_elsewhere(p, c));
}

/* The processor type and the number of cores. */
static void page_machine(char *out, size_t max) {
    struct utsname name;
    snprintf(out, max, "%s, %d cores", uname(&name) == 0 ? name.machine : "unknown", pl_cores());
}

json_t *cli_reproduce_outcomes(const struct reproduce *p) {
    json_t *claims = json_array();
    char machine[PAGE_WORDS + 80];
    for (int i = 0; i < p->claims.n_claims; i++) {
        int seeds;
        const struct claim *c = &p->claims.claim[i];
        if (cli_claim_verdict(p, c, &seeds) != VERDICT_NONE)
            json_array_append_new(claims, page_claim(p, c));
    }
    page_machine(machine, sizeof machine);
    char date[16] = "";
    time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc)) strftime(date, sizeof date, "%Y-%m-%d", &utc);
    return json_pack("{s:s, s:s, s:s, s:s, s:o, s:o}", "form", cli_claim_forms[p->form], "program",
                     pl_version(), "machine", machine, "date", date, "seconds",
                     page_real(page_seconds(p, NULL)), "claims", claims);
}

/* --- the page ---------------------------------------------------------------------------- */

static void page_text(FILE *f, const char *s) {
    for (; *s; s++)
        if (*s == '<')
            fputs("&lt;", f);
        else if (*s == '&')
            fputs("&amp;", f);
        else
            fputc(*s, f);
}

static void page_tagged(FILE *f, const char *tag, const char *s) {
    fprintf(f, "<%s>", tag);
    page_text(f, s);
    fprintf(f, "</%s>", tag);
}

static void page_html_required(FILE *f, const struct reproduce *p, const struct claim_required *q) {
    struct shown one = cli_shown(p, q);
    char words[PAGE_WORDS], ours[PAGE_WORDS];
    cli_verdict_words(one.verdict, one.ours.n, words, sizeof words);
    cli_shown_words(one.ours, ours, sizeof ours);
    fputs("<tr>", f);
    page_tagged(f, "td", q->text);
    page_tagged(f, "td", ours);
    page_tagged(f, "td", words);
    fputs("</tr>\n", f);
}

static void page_html_claim(FILE *f, const struct reproduce *p, const struct claim *c) {
    char words[PAGE_WORDS], command[REPRODUCE_COMMAND];
    int seeds = 0;
    enum verdict verdict = cli_claim_verdict(p, c, &seeds);
    cli_verdict_words(verdict, seeds, words, sizeof words);
    fprintf(f, "<h2 id='%s'>%s: %s</h2>\n", c->name, c->name, words);
    page_tagged(f, "p", c->says);
    fputs("<p>", f);
    page_text(f, c->paper);
    fputs(": ", f);
    page_text(f, c->reports);
    fputs("</p>\n<table><tr><th>must hold<th>ours<th>verdict</tr>\n", f);
    for (int j = 0; j < c->n_required; j++) page_html_required(f, p, &c->required[j]);
    fputs("</table>\n", f);
    if (c->note) page_tagged(f, "p", c->note);
    for (int i = 0; i < p->claims.n_settings; i++) {
        if (!cli_claim_uses(&p->claims, c, &p->claims.setting[i])) continue;
        cli_setting_command(p, &p->claims.setting[i], command, sizeof command);
        page_tagged(f, "pre", command);
    }
}

static char *page_html(const struct reproduce *p) {
    char *text = NULL, machine[PAGE_WORDS + 80];
    size_t n;
    FILE *f = open_memstream(&text, &n);
    if (!f) return NULL;
    page_machine(machine, sizeof machine);
    fputs(PAGE_BEGIN, f);
    fprintf(f,
            "%s</title>\n"
            "<style>body{font:15px sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
            "td,th{text-align:left;padding:.2em .8em;border-bottom:1px solid #8884}"
            "pre{white-space:pre-wrap}:root{color-scheme:light dark}</style>\n"
            "<h1>Claims of papers, %s form</h1>\n<p>paceline %s on %s; means over seeds, of "
            "ratios geometric ones, with 95 %% intervals.</p>\n",
            cli_claim_forms[p->form], cli_claim_forms[p->form], pl_version(), machine);
    for (int i = 0; i < p->claims.n_claims; i++) {
        int seeds;
        if (cli_claim_verdict(p, &p->claims.claim[i], &seeds) != VERDICT_NONE)
            page_html_claim(f, p, &p->claims.claim[i]);
    }
    fputs("</html>\n", f);
    return fclose(f) == 0 ? text : NULL;
}

static void page_path(const struct reproduce *p, const char *ending, char *out, size_t max) {
    snprintf(out, max, "%.400s/%s.%s", p->out, cli_claim_forms[p->form], ending);
}

/* A file that this command has written may be replaced, no other. */
static int page_may_write(const struct reproduce *p, const char *ending, const char *begin) {
    char path[REPRODUCE_PATH + 32], text[sizeof PAGE_BEGIN] = "";
    struct stat st;
    page_path(p, ending, path, sizeof path);
    if (lstat(path, &st) != 0) return CLI_OK;
    FILE *f = S_ISREG(st.st_mode) ? fopen(path, "r") : NULL;
    bool ours = f && fread(text, 1, strlen(begin), f) == strlen(begin) && strcmp(text, begin) == 0;
    if (f) fclose(f);
    if (ours) return CLI_OK;
    return cli_fail(CLI_FAILED,
                    "'%s' is not of paceline reproduce and will not be overwritten; give another "
                    "folder with --out",
                    path);
}

int cli_reproduce_may_write(const struct reproduce *p) {
    int status = page_may_write(p, "json", PAGE_OBJECT);
    return status == CLI_OK ? page_may_write(p, "html", PAGE_BEGIN) : status;
}

static int page_save(const struct reproduce *p, const char *ending, char *text) {
    char path[REPRODUCE_PATH + 32], why[600] = "out of memory";
    page_path(p, ending, path, sizeof path);
    bool bad = !text || pl_write_file(path, text, why, sizeof why);
    free(text);
    return bad ? cli_fail(CLI_FAILED, "%s", why) : CLI_OK;
}

int cli_reproduce_write(const struct reproduce *p) {
    json_t *all = cli_reproduce_outcomes(p);
    int status = page_save(p, "json", all ? json_dumps(all, JSON_INDENT(1)) : NULL);
    json_decref(all);
    return status == CLI_OK ? page_save(p, "html", page_html(p)) : status;
}
