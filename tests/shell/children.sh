# Ends those of the processes that are still children of this shell. One that has ended may have
# left its number to a process of somebody else.
end_children() { # process ids
    for p in "$@"; do
        read -r _ _ _ parent _ 2>/dev/null <"/proc/$p/stat" || continue
        [ "$parent" != $$ ] || kill -9 "$p" 2>/dev/null || :
    done
}
