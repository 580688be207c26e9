/* Inside src/data: what the files of the CSV reader share. csv_text.c reads lines and fields,
 * csv_head.c decides what the first line and each column is, csv.c reads rows. */
#ifndef PL_DATA_CSV_H
#define PL_DATA_CSV_H

#include "data/columns.h"
#include "data/file.h"
#include "data/schema.h"

#define CSV_WINDOW ((size_t)1 << 16)

struct csv_conf {
    char file[PL_TEXT_MAX], target[PL_TEXT_MAX], ignore[PL_TEXT_MAX], category[PL_TEXT_MAX];
    char test[PL_TEXT_MAX];
    int sep, header, missing;
    int64_t categories; /* per column, at most */
    struct pl_columns_conf ready;
};
enum { CSV_SEP_AUTO, CSV_COMMA, CSV_SEMICOLON, CSV_TAB, CSV_BLANK };
enum { CSV_HEADER_AUTO, CSV_HEADER_YES, CSV_HEADER_NO };
enum { CSV_REFUSE, CSV_FILL };

/* One file while it is read. */
struct csv_text {
    struct pl_file file;
    uint8_t window[CSV_WINDOW];
    size_t at, n;
    char *line; /* [room], without its end */
    size_t length, room;
    uint64_t line_no;
    bool after_cr; /* the last byte ended a line; a LF now belongs to it */
};

/* The fields of one line. */
struct csv_fields {
    char *text; /* what they point into */
    char **field;
    uint64_t n;
};

/* What a field of each line is: the number of a column of the schema, or one of these. */
enum { CSV_TARGET = -1, CSV_IGNORED = -2, CSV_INDEX = -3 };

/* The table, over both files. */
struct csv {
    const struct csv_conf *conf;
    struct pl_schema *schema; /* of the training rows, while they are read; or of a checkpoint: */
    bool known;               /* rows become numbers as the schema says */
    char sep;                 /* a character; '\0': not known yet */
    struct csv_fields names;  /* the first line of the first file, */
    bool has_names;           /* which holds names */
    bool may_name;            /* or could, for all that two lines tell; */
    bool again;               /* all lines have told that it does: the file is read again */
    int64_t *role;            /* [n_fields] */
    uint64_t n_fields;
    bool has_index; /* the first field, which is left out if its values count up: */
    double index;   /* the last one */
    struct pl_names classes;
};

/* Reads the next line that is neither blank nor a comment, without its end (LF, CR LF or CR) and
 * without a mark of UTF-8 before the first. */
int csv_line(struct csv_text *t, bool *more, struct pl_why *why);
int csv_bad(const struct csv_text *t, struct pl_why *why, const char *what);

/* The separator that occurs most often in the line, outside quotes. Commas that all lie between
 * digits are decimal commas if there are semicolons. */
char csv_guess(const char *line);

/* Cuts the next field off the line at *at: unquoted, without blanks around it, ended by a zero in
 * place. *at is NULL after the last. If the field is damaged, *bad becomes what is wrong. */
const char *csv_field(char sep, char **at, const char **bad);

/* Cuts a copy of the line into fields; free with csv_fields_free. */
int csv_cut(const struct csv_text *t, char sep, const char *line, struct csv_fields *out,
            struct pl_why *why);
void csv_fields_free(struct csv_fields *f);

/* A finite number. */
bool csv_real(const char *text, double *value);
/* The same, or true or false. */
bool csv_number(const char *text, double *value);
/* What keeps a text from being a number that otherwise looks like one, as 0,9 or 1,234.5 or $5 or
 * 7%; NULL if it does not. */
const char *csv_written(const char *text);
/* Whether the field stands for no value. */
bool csv_missing(const char *text);

/* Whether `list` ("id,name") has the name. */
bool csv_in_list(const char *list, const char *name);

/* Decides, from the first line of a file and the second (NULL if there is none), whether the first
 * holds names, and for the first file what each field is. */
int csv_head(struct csv *c, const struct csv_text *t, const char *first, const char *second,
             bool *names, struct pl_why *why);

#endif
