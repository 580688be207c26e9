# The part of tests/tidy that reads text. Tables and limits come in the environment; see there.

BEGIN {
    n = split(ENVIRON["LAYERS"], row, "\n")
    for (i = 1; i <= n; i++) {
        m = split(row[i], word, " ")
        if (m) layer[word[1]] = 1
        for (j = 2; j <= m; j++) may[word[1], word[j]] = 1
    }
    n = split(ENVIRON["RESERVED"], row, "\n")
    for (i = 1; i <= n; i++) {
        m = split(row[i], word, " ")
        if (m) reserved[word[1]] = 1
        for (j = 2; j <= m; j++) owns[word[j], word[1]] = 1
    }
    n = split(ENVIRON["BANNED"], row, "\n")
    for (i = 1; i <= n; i++)
        if (split(row[i], word, " ")) {
            scope[word[1]] = word[2]
            sub(/^[^ ]+ +[^ ]+ +/, "", row[i])
            instead[word[1]] = row[i]
        }
    n = split(ENVIRON["PYTHON_LAYERS"], row, "\n")
    for (i = 1; i <= n; i++) {
        m = split(row[i], word, " ")
        for (j = 1; j <= m; j++) level[word[j]] = i
    }
    n = split(ENVIRON["LONG"], row, "\n")
    for (i = 1; i <= n; i++)
        if (split(row[i], word, " ")) long[word[1], word[2]] = word[3]
    words("GENERIC", generic)
    words("NAMELESS", nameless)
    words("FAMILIES", family)
    words("ORDINARY", ordinary)
    words("CHOICES", choice)
    words("THREADED", threaded)
    methods = ENVIRON["METHODS"]
    for (i = 1; i < ARGC; i++) known[ARGV[i]] = 1
    for (i = 1; i < ARGC; i++)
        if (ARGV[i] ~ /^src\/.*\.c$/) read_entries(ARGV[i])
}

function words(variable, set,    n, i, word) {
    n = split(ENVIRON[variable], word)
    for (i = 1; i <= n; i++) set[word[i]] = 1
}

# The names of the entries that a file defines, as identifiers spell them: own[file, i], and in
# `name` if it is the table of methods or of a plug-in family. A row of the table of methods is
# METHOD("name", … or RECIPE(symbol, "name", …
function read_entries(path,    text, line, n, entry, pattern, folder) {
    text = ""
    while ((getline line < path) > 0) text = text " " line
    close(path)
    pattern = "\\.id = \\{ *(\\.name = )?\"[^\"]+\""
    if (path == methods) pattern = "(METHOD\\( *|RECIPE\\([a-z0-9_]+, *)\"[^\"]+\""
    folder = folder_of(path)
    n = 0
    while (match(text, pattern)) {
        entry = substr(text, RSTART, RLENGTH)
        text = substr(text, RSTART + RLENGTH)
        gsub(/^[^"]*"|"$|\+/, "", entry)
        if (path == methods || (folder in family)) name[entry] = 1
        gsub(/-/, "_", entry)
        own[path, ++n] = entry
        if (path == methods || (folder in family)) spelled[entry] = 1
    }
    if (path == methods && n == 0)
        breach(path, 1, "tidy finds no method in it: read_entries of tidy.awk must follow its rows")
    if ((folder in family) && folder != "rule" && path !~ /(\/table|_rules)\.c$/ && n == 0)
        breach(path, 1, "tidy finds no name in it: read_entries of tidy.awk must follow")
}

function breach(file, line, what) {
    print file ":" line ": " what
}

function end_of_file() {
    if (is_shipped) end_of_function()
    if ((file, "-") in long) max_file = long[file, "-"]
    if (file && (is_c || is_shipped) && lines > max_file)
        breach(file, lines, "the file has more than " max_file " lines; split it")
    if (file && n_strays > 0)
        breach(file, stray_line, "functions that do not begin with " stem_name(file) "_:" strays)
    if (folder in threaded) {
        threads_of[stem_of(file)] += says_threads
        if (!(stem_of(file) in threads_at) || file ~ /\.c$/) threads_at[stem_of(file)] = file
    }
}

FNR == 1 {
    end_of_file()
    file = FILENAME
    is_c = file ~ /\.[ch]$/
    is_script = file ~ /\.(py|js)$/
    max_columns = ENVIRON[is_script ? "MAX_SCRIPT_COLUMNS" : "MAX_COLUMNS"]
    folder = ""
    if (file ~ /^src\/[^\/]+\//) {
        folder = file
        sub(/^src\//, "", folder)
        sub(/\/.*/, "", folder)
        if (!(folder in layer)) breach(file, 1, "src/" folder " is not in the table of layers")
    }
    is_family = folder == "policy" || folder == "tuner"
    if (is_family && file ~ /\.c$/ && file !~ /(\/table|_rules)\.c$/) plugin[file] = folder
    is_shipped = file ~ /^(python\/paceline|src\/observe\/page)\/.*\.(py|js)$/
    is_module = is_shipped && file ~ /\.py$/
    module = package = ""
    if (is_module) {
        module = package = file
        sub(/^python\/paceline\//, "", package)
        sub(/[^\/]*$/, "", package)
        sub(/^python\/paceline\//, "", module)
        sub(/\.py$/, "", module)
        sub(/\/?__init__$/, "", module)
        if (module == "") module = "paceline"
        if (!(module in level)) breach(file, 1, module " is not in the table of Python modules")
    }
    is_code = (folder && !is_shipped) || file ~ /\.c$/
    max_file = ENVIRON[is_code ? "MAX_CODE_FILE_LINES" : "MAX_FILE_LINES"]
    max_function = ENVIRON[folder ? "MAX_SRC_FUNCTION_LINES" : "MAX_FUNCTION_LINES"]
    is_generic = (folder in generic) && file != methods
    is_nameless = ((folder ? folder : file ~ /^python\// ? "python" : "") in nameless)
    if (file ~ /^tests\/[^\/]*\.(c|h|sh)$/) breach(file, 1, "belongs into a folder of tests")
    in_comment = in_function = 0
    head = strays = prefix = ""
    n_strays = says_threads = 0
    at_top = 1
}

{ lines = FNR }

# text -----------------------------------------------------------------------------------------

/\t/ && file !~ /\.md$/ { breach(file, FNR, "a tab") }
/[ \t\r]$/ { breach(file, FNR, "blanks at the end of the line") }
file !~ /\.md$/ && length($0) > max_columns {
    wide = $0
    gsub(/[\200-\277]/, "", wide) # UTF-8: count characters, not bytes
    if (length(wide) > max_columns) breach(file, FNR, "more than " max_columns " columns")
}
/(^|[^A-Za-z0-9_])(FIXME|XXX)([^A-Za-z0-9_]|$)/ && (is_c || is_script) {
    breach(file, FNR, "FIXME or XXX")
}
/(^|[^A-Za-z0-9_])TODO([^A-Za-z0-9_(]|\(\)|$)/ && (is_c || is_script) {
    breach(file, FNR, "a TODO without the place where it is tracked: TODO(place)")
}

# A comparison with the name of a method or plug-in, or a call that looks it up.
BEGIN {
    compared = "([!=]=|[( ]in|[sS]tarts[wW]ith\\(|includes\\(|has\\() *[[({]?$"
    looked_up = "(cmp|_set|_find|_resolve|_parse)\\([^;?]*$"
}
function check_compared(s,    before, text) {
    before = ""
    while (match(s, /["'][A-Za-z0-9_+:@=,.-]+["']/)) {
        before = before substr(s, 1, RSTART - 1)
        text = substr(s, RSTART + 1, RLENGTH - 2)
        s = substr(s, RSTART + RLENGTH)
        sub(/[:@].*/, "", text)
        if ((text in name) && !(text in choice) && (before ~ compared || before ~ looked_up))
            breach(file, FNR, "compares or looks up \"" text "\" by name")
        before = before "\"" text "\""
    }
}
is_nameless && !/^ *(\/?\*|\/\/|#)/ { check_compared($0) }

# Python and JavaScript --------------------------------------------------------------------------

function end_of_function(    n, most) {
    n = last_line - in_function + 1
    most = ENVIRON["MAX_SRC_FUNCTION_LINES"]
    if ((file, function_name) in long) most = long[file, function_name]
    if (in_function && n > most)
        breach(file, in_function, function_name " has " n " lines, more than " most)
    in_function = 0
}

# A function ends before the next line that is not further to the right than its first, but for what
# closes its parameters or its block.
function check_length(    column) {
    match($0, /^ */)
    column = RLENGTH
    if (in_function && column <= function_column && $0 !~ /^ *[)}\]]/) end_of_function()
    if (!in_function && $0 ~ /^ *(async )?(def|function) /) {
        in_function = FNR
        function_column = column
        function_name = $0
        sub(/^ *(async )?(def|function) /, "", function_name)
        sub(/[^A-Za-z0-9_].*/, "", function_name)
    }
    last_line = FNR
}

function import_module(target) {
    if (!(target in level)) breach(file, FNR, "there is no module " target " in the table")
    else if (level[target] > level[module])
        breach(file, FNR, module " must not import " target)
}

# "from .a import …", "from . import a, b", and the same with two dots.
function check_import(    from, names, n, i, name_of) {
    names = from = $0
    sub(/^ *from \.+[A-Za-z0-9_.]* import \(?/, "", names)
    sub(/^ *from /, "", from)
    sub(/ import .*/, "", from)
    n = match(from, /[^.]/) ? RSTART - 1 : length(from)
    from = substr(from, n + 1)
    gsub(/\./, "/", from)
    if (from != "") {
        import_module((n == 1 ? package : "") from)
        return
    }
    n = split(names, name_of, /, */) * (n == 1 ? 1 : -1)
    for (i = 1; i in name_of; i++) {
        sub(/ .*/, "", name_of[i])
        import_module((n > 0 ? package : "") name_of[i])
    }
}

is_shipped && /[^ ]/ { check_length() }
is_module && /^ *from \./ && !typing { check_import() }
{ typing = /if TYPE_CHECKING:/ || (typing && /^ +from /) }

!is_c { next }

# C --------------------------------------------------------------------------------------------

# The line without comments and without what is inside quotes, which goes into literal[].
function code_of(s,    out, token, inside) {
    out = ""
    n_literals = 0
    while (s != "") {
        if (in_comment) {
            if (!match(s, /\*\//)) return out
            s = substr(s, RSTART + 2)
            in_comment = 0
        } else if (!match(s, /\/\*|\/\/|["']/)) {
            return out s
        } else {
            token = substr(s, RSTART, RLENGTH)
            out = out substr(s, 1, RSTART - 1)
            s = substr(s, RSTART + RLENGTH)
            if (token == "//") return out
            if (token == "/*") {
                in_comment = 1
            } else {
                inside = ""
                while (match(s, /\\.|["']/)) {
                    found = substr(s, RSTART, RLENGTH)
                    inside = inside substr(s, 1, RSTART - 1) (found == token ? "" : found)
                    s = substr(s, RSTART + RLENGTH)
                    if (found == token) break
                }
                if (token == "\"") literal[++n_literals] = inside
                out = out token token
            }
        }
    }
    return out
}

function folder_of(path) {
    if (path ~ /^include\//) return "public"
    if (path !~ /^src\//) return ""
    sub(/^src\//, "", path)
    sub(/\/.*/, "", path)
    return path
}

function stem_of(path) {
    sub(/\.[ch]$/, "", path)
    return path
}

function include_system(header) {
    if (!folder) return
    if ((header in reserved) && !((folder, header) in owns))
        breach(file, FNR, header " is not for src/" folder)
    else if (!((folder, "<>") in may) && !((folder, header) in may))
        breach(file, FNR, "src/" folder " must not include " header)
}

function include_ours(header,    path, target, dir) {
    dir = file
    sub(/[^\/]*$/, "", dir)
    path = ""
    if ((dir header) in known) path = dir header
    else if (("src/" header) in known) path = "src/" header
    else if (("include/" header) in known) path = "include/" header
    else if (!folder && (("tests/shared/" header) in known)) path = "tests/shared/" header
    else if (!folder && (header in known)) path = header
    if (path == "") {
        breach(file, FNR, "there is no " header " in the tree")
        return
    }
    if (stem_of(path) != stem_of(file)) included[path] = 1
    if (!folder) return
    target = folder_of(path)
    sub(/^src\//, "", path)
    if (target == folder && ((folder, "own") in may)) return
    if (((folder, target) in may) || ((folder, path) in may)) return
    breach(file, FNR, "src/" folder " must not include " header)
}

function check_calls(code,    call, rest) {
    rest = code
    while (match(rest, /[A-Za-z_][A-Za-z0-9_]* *\(/)) {
        call = substr(rest, RSTART, RLENGTH)
        sub(/ *\($/, "", call)
        rest = substr(rest, RSTART + RLENGTH)
        if (!(call in scope)) continue
        if (scope[call] != "all" && !folder) continue
        if (scope[call] == "library" && folder == "cli") continue
        breach(file, FNR, call "() is banned; use " instead[call])
    }
}

# --- names of methods and plug-ins -------------------------------------------------------------

function check_literal(text,    n, i, word, first) {
    first = text
    sub(/:.*/, "", first)
    gsub(/\+/, "", first)
    if ((first in name) && !(first in choice)) {
        breach(file, FNR, "generic code knows \"" first "\" by name")
        return
    }
    n = split(text, word, /[^A-Za-z0-9_-]+/)
    for (i = 1; i <= n; i++)
        if ((word[i] in name) && !(word[i] in ordinary))
            breach(file, FNR, "generic code speaks of \"" word[i] "\"")
}

# The name of a method or plug-in that is some words of an identifier, or "".
function name_in(identifier,    n, i, j, word, run) {
    n = split(tolower(identifier), word, "_")
    for (i = 1; i <= n; i++) {
        run = ""
        for (j = i; j <= n && j < i + 5; j++) {
            run = run (j > i ? "_" : "") word[j]
            if ((run in spelled) && !(run in ordinary)) return run
        }
    }
    return ""
}

function check_names(code,    identifier, i) {
    for (i = 1; i <= n_literals; i++) check_literal(literal[i])
    while (match(code, /[A-Za-z_][A-Za-z0-9_]*/)) {
        identifier = substr(code, RSTART, RLENGTH)
        code = substr(code, RSTART + RLENGTH)
        if (!(identifier in named)) named[identifier] = name_in(identifier)
        if (named[identifier] != "")
            breach(file, FNR, identifier ": generic code knows " named[identifier] " by name")
    }
}

# --- one prefix per file -----------------------------------------------------------------------

function stem_name(path) {
    path = stem_of(path)
    sub(/.*\//, "", path)
    return path
}

function begins_with(text, start) {
    return start != "" && (text == start || index(text, start "_") == 1)
}

# A local function begins with the name of its file, or with some of its words (mpi_port.c: port_),
# with that of an entry the file defines, or with what its first comment says: "Prefix: word_".
function has_prefix(function_name, stem,    n, i, j, word, run) {
    if (prefix != "" && begins_with(function_name, prefix)) return 1
    n = split(stem, word, "_")
    for (i = 1; i <= n; i++) {
        run = ""
        for (j = i; j <= n; j++) {
            run = run (j > i ? "_" : "") word[j]
            if (begins_with(function_name, run)) return 1
        }
    }
    sub(/[0-9]+$/, "", stem)
    if (begins_with(function_name, stem)) return 1
    for (i = 1; (file, i) in own; i++) {
        split(own[file, i], word, "_")
        if (begins_with(function_name, word[1])) return 1
    }
    return 0
}

function check_prefix(header, line,    at) {
    if (!folder || file !~ /\.c$/ || header !~ /^static[ ]/) return
    sub(/PL_VARIANTS\([a-z_]+, */, "", header) # (type, name, (parameters), (arguments))
    if (!match(header, /[A-Za-z_][A-Za-z0-9_]* *[(,]/)) return
    at = substr(header, RSTART, RLENGTH)
    sub(/ *[(,]$/, "", at)
    if (has_prefix(at, stem_name(file))) return
    if (n_strays++ == 0) stray_line = line
    strays = strays " " at
}

# A function is what begins in the first column, is no data, and ends with a '}' there.
function check_function(code) {
    if (in_function) {
        if (code ~ /^}/) {
            if (FNR - in_function + 1 > max_function)
                breach(file, in_function, "the function has more than " max_function " lines")
            in_function = 0
        }
        return
    }
    if (code ~ /^[A-Za-z_]/) {
        head = ""
        head_line = FNR
    }
    head = head code
    if (head ~ /^static[^=;]*\(.*\{.*\} *$/) check_prefix(head, head_line)
    if (code ~ /[;}] *$/) head = ""
    if (code ~ /\{ *$/) {
        if (head ~ /^[A-Za-z_].*\(/ && head !~ /=/) {
            in_function = head_line
            check_prefix(head, head_line)
        }
        head = ""
    }
}

{
    was_comment = in_comment
    code = code_of($0)
    if (at_top && code ~ /[^ ]/ && code !~ /^ *#/) at_top = 0
    if (at_top && (was_comment || /\/\*|\/\//)) {
        if (/(^|[^A-Za-z])Threads: /) says_threads = 1
        if (match($0, /Prefix: [a-z0-9_]+/)) {
            prefix = substr($0, RSTART + 8, RLENGTH - 8)
            sub(/_$/, "", prefix)
        }
    }
    if (!was_comment && $0 ~ /^ *# *include/) {
        if (match($0, /<[^>]+>/)) include_system(substr($0, RSTART, RLENGTH))
        else if (match($0, /"[^"]+"/)) include_ours(substr($0, RSTART + 1, RLENGTH - 2))
    } else {
        check_calls(code)
        check_function(code)
        if (is_generic) check_names(code)
    }
    if (is_family && file ~ /\/table\.c$/) table[folder] = table[folder] " " code
}

END {
    end_of_file()
    for (path in known)
        if (path ~ /^(src|tests|bench)\/.*\.h$/ && !(path in included))
            breach(path, 1, "no file but its own includes this header")
    for (path in threads_of)
        if (!threads_of[path])
            breach(threads_at[path], 1, "neither it nor its header says at the top \"Threads: …\"")
    for (path in plugin) {
        base = path
        gsub(/^.*\/|\.c$/, "", base)
        if (table[plugin[path]] !~ "(^|[^a-z0-9_])(pl_" plugin[path] "_)?" base "([^a-z0-9_]|$)")
            breach(path, 1, base " is not in src/" plugin[path] "/table.c")
    }
}
