#include "sys/numerals.h"

#include <langinfo.h>
#include <string.h>

struct pl_numerals pl_numerals_set(void) {
    struct pl_numerals n = {(locale_t)0, (locale_t)0};
    if (strcmp(nl_langinfo(RADIXCHAR), ".") == 0) return n;
    locale_t copy = duplocale(uselocale((locale_t)0));
    if (copy == (locale_t)0) return n;
    n.ours = newlocale(LC_NUMERIC_MASK, "C", copy);
    if (n.ours == (locale_t)0) {
        freelocale(copy);
        return n;
    }
    n.before = uselocale(n.ours);
    return n;
}

void pl_numerals_restore(struct pl_numerals *n) {
    if (n->ours == (locale_t)0) return;
    uselocale(n->before);
    freelocale(n->ours);
}
