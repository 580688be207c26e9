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
    max_file = ENVIRON["MAX_FILE_LINES"]
    max_function = ENVIRON["MAX_FUNCTION_LINES"]
    max_columns = ENVIRON["MAX_COLUMNS"]
    for (i = 1; i < ARGC; i++) known[ARGV[i]] = 1
}

function breach(file, line, what) {
    print file ":" line ": " what
}

function end_of_file() {
    if (file && is_c && lines > max_file)
        breach(file, lines, "the file has more than " max_file " lines; split it")
}

FNR == 1 {
    end_of_file()
    file = FILENAME
    is_c = file ~ /\.[ch]$/
    folder = ""
    if (file ~ /^src\/[^\/]+\//) {
        folder = file
        sub(/^src\//, "", folder)
        sub(/\/.*/, "", folder)
        if (!(folder in layer)) breach(file, 1, "src/" folder " is not in the table of layers")
    }
    is_family = folder == "policy" || folder == "tuner"
    if (is_family && file ~ /\.c$/ && file !~ /(\/table|_rules)\.c$/) plugin[file] = folder
    in_comment = in_function = 0
    head = ""
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
/(^|[^A-Za-z0-9_])(FIXME|XXX)([^A-Za-z0-9_]|$)/ && is_c { breach(file, FNR, "FIXME or XXX") }
/(^|[^A-Za-z0-9_])TODO([^A-Za-z0-9_(]|\(\)|$)/ && is_c {
    breach(file, FNR, "a TODO without the place where it is tracked: TODO(place)")
}

!is_c { next }

# C --------------------------------------------------------------------------------------------

# The line without comments and without what is inside quotes.
function code_of(s,    out, token) {
    out = ""
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
                while (match(s, /\\.|["']/)) {
                    found = substr(s, RSTART, RLENGTH)
                    s = substr(s, RSTART + RLENGTH)
                    if (found == token) break
                }
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

function check_calls(code,    name, call, rest) {
    rest = code
    while (match(rest, /[A-Za-z_][A-Za-z0-9_]* *\(/)) {
        name = call = substr(rest, RSTART, RLENGTH)
        sub(/ *\($/, "", name)
        rest = substr(rest, RSTART + RLENGTH)
        if (!(name in scope)) continue
        if (scope[name] != "all" && !folder) continue
        if (scope[name] == "library" && folder == "cli") continue
        breach(file, FNR, name "() is banned; use " instead[name])
    }
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
    if (code ~ /[;}] *$/) head = ""
    if (code ~ /\{ *$/) {
        if (head ~ /^[A-Za-z_].*\(/ && head !~ /=/) in_function = head_line
        head = ""
    }
}

{
    was_comment = in_comment
    code = code_of($0)
    if (!was_comment && $0 ~ /^ *# *include/) {
        if (match($0, /<[^>]+>/)) include_system(substr($0, RSTART, RLENGTH))
        else if (match($0, /"[^"]+"/)) include_ours(substr($0, RSTART + 1, RLENGTH - 2))
    } else {
        check_calls(code)
        check_function(code)
    }
    if (is_family && file ~ /\/table\.c$/) table[folder] = table[folder] " " code
}

END {
    end_of_file()
    for (path in known)
        if (path ~ /^(src|tests|bench)\/.*\.h$/ && !(path in included))
            breach(path, 1, "no file but its own includes this header")
    for (path in plugin) {
        name = path
        gsub(/^.*\/|\.c$/, "", name)
        if (table[plugin[path]] !~ "(^|[^a-z0-9_])(pl_" plugin[path] "_)?" name "([^a-z0-9_]|$)")
            breach(path, 1, name " is not in src/" plugin[path] "/table.c")
    }
}
