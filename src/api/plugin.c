/* Policies that a program registers with a setup. What could make the library read or write outside
 * a table or a conf is refused here; what a policy decides is checked by the referee. */
#include <stdlib.h>
#include <string.h>

#include "api/setup.h"

#define PLUGIN_POLICIES 8 /* of one program */
#define PLUGIN_OPTIONS 32 /* of one policy; the rest is taken for a table without an end */

struct pl_family pl_setup_policies(const struct pl_setup *s) {
    struct pl_family family = pl_policy_family;
    family.table = s->policy;
    return family;
}

struct pl_knobs pl_knobs_first(const void *conf) {
    struct pl_knobs knobs = *(const struct pl_knobs *)conf;
    if (knobs.k < 1) knobs.k = 1;
    if (knobs.bound == 0) knobs.bound = PL_NO_BOUND;
    return knobs;
}

/* Whether specs can contain it. */
static bool plugin_is_name(const char *name) {
    size_t n = name ? strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-_") : 0;
    return n > 0 && n < PL_NAME_MAX && name[n] == '\0';
}

/* Returns what is wrong with option i of a table, or NULL. */
static const char *plugin_option(const struct pl_opt *opts, int i, size_t conf_size) {
    static const size_t size[] = {
        [PL_TYPE_INT] = sizeof(int64_t), [PL_TYPE_REAL] = sizeof(double),
        [PL_TYPE_BOOL] = sizeof(bool),   [PL_TYPE_CHOICE] = sizeof(int),
        [PL_TYPE_COUNT] = sizeof(int),   [PL_TYPE_BOUND] = sizeof(uint64_t),
        [PL_TYPE_TEXT] = PL_TEXT_MAX,    [PL_TYPE_LIST] = sizeof(struct pl_list_of)};
    const struct pl_opt *o = &opts[i];
    if (!plugin_is_name(o->name)) return "has a name that is not made of a-z, 0-9, - and _";
    for (int j = 0; j < i; j++)
        if (strcmp(opts[j].name, o->name) == 0) return "has the name of another option";
    if ((size_t)o->type >= sizeof size / sizeof *size) return "has a type that does not exist";
    if (!o->def || !o->help) return "has no default or no help";
    if (o->type == PL_TYPE_CHOICE && (!o->choices || !o->choices[0])) return "has no choices";
    if (o->offset > conf_size || size[o->type] > conf_size - o->offset)
        return "has a field beyond the end of the conf";
    return NULL;
}

/* Every option, and then the defaults. */
static int plugin_options(const struct pl_entry *id, struct pl_why *why) {
    int n = 0;
    for (const char *no; id->opts[n].name; n++) {
        if (n == PLUGIN_OPTIONS)
            return pl_fail(why, PL_EUSAGE,
                           "policy '%s' has more than %d options; end the table with PL_OPT_END",
                           id->name, PLUGIN_OPTIONS);
        if ((no = plugin_option(id->opts, n, id->conf_size)))
            return pl_fail(why, PL_EUSAGE, "policy '%s': option %d %s", id->name, n + 1, no);
    }
    void *conf = calloc(1, id->conf_size + 1);
    if (!conf) return pl_fail(why, PL_ENOMEM, "out of memory");
    int rc = pl_opt_parse(id->opts, conf, "", 1, why);
    free(conf);
    return rc ? pl_fail_in(why, rc, "a default of the policy's options") : PL_OK;
}

int pl_setup_policy(pl_setup *s, const struct pl_policy *p) {
    struct pl_why *why = &s->why;
    const struct pl_entry *taken;
    const struct pl_family family = pl_setup_policies(s);
    int n = 0, n_library = 0;
    while (pl_policy_family.table[n_library]) n_library++;
    while (s->policy[n]) n++;
    why->text[0] = '\0';
    if (!plugin_is_name(p->id.name))
        return pl_fail(why, PL_EUSAGE,
                       "a policy needs a name of at most %d characters a-z, 0-9, "
                       "- and _",
                       PL_NAME_MAX - 1);
    const char *name = p->id.name;
    if (!pl_entry_find(&family, name, &taken, NULL))
        return pl_fail(why, PL_EUSAGE, "there already is a policy '%s'; choose another name", name);
    if (n - n_library == PLUGIN_POLICIES || n == PL_SETUP_POLICIES)
        return pl_fail(why, PL_EUSAGE, "policy '%s' is one too many; a setup takes %d", name,
                       PLUGIN_POLICIES);
    const char *no = !p->arrive || !p->knobs ? "needs the callbacks arrive and knobs"
                     : !p->id.opts ? "needs a table of options, which may be PL_OPT_END alone"
                     : p->state_size < p->id.conf_size ? "needs a state_size of at least conf_size"
                     : p->grid && !p->join             ? "has a grid and needs the callback join"
                     : p->grid && p->peers             ? "cannot have both a grid and peers"
                                                       : NULL;
    if (no) return pl_fail(why, PL_EUSAGE, "policy '%s' %s", name, no);
    int rc = plugin_options(&p->id, why);
    if (!rc) s->policy[n] = &p->id;
    return rc;
}
