# Makes the source of the kernel (pl_loop_kernel) from kernel.c.in and the files it includes:
#
#     awk -v root=SOURCE_DIR -f kernel.awk kernel.c.in
#
# Of an included file, the tables of entries and options are left out, because functions are found
# by name, and so are its own #include lines and declarations of tables. The options of a rule are a
# pl_conf there, which converts to the rule's own type in C++ too.
function include(path, line, skips, n) {
    n = 0
    while ((getline line < path) > 0) {
        n++
        if (line ~ /^(static )?const struct pl_[a-z_]+ [^(]*=/) skips = 1
        if (!skips && line !~ /^#include/ && line !~ /^extern /) {
            gsub(/const void \*conf/, "pl_conf conf", line)
            print line
        }
        if (skips && line ~ /};$/) skips = 0
    }
    close(path)
    if (n == 0) {
        print "kernel.awk: cannot read " path > "/dev/stderr"
        exit 1
    }
}

/^@include / { include(root "/" $2); next }
{ print }
