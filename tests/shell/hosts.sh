# For tests on several hosts, which are network namespaces: . "$SOURCE_DIR/tests/shell/hosts.sh"
. "${SOURCE_DIR:?}/tests/shell/network.sh"
net=pl$$
hosts=
clean() {
    # shellcheck disable=SC2086
    end_children $pids
    for h in s $hosts; do ip netns del "$net-$h" 2>/dev/null || :; done
    rm -rf "$work"
}
trap clean EXIT

skip() {
    echo "skipped: $*"
    exit 77
}

# Host s has the switch; 10.77.0.1 is its own address, and host N has 10.77.0.1N.
make_hosts() { # N …
    [ -z "${SANITIZE:-}" ] || skip "hosts are tested with the plain build"
    command -v ip >/dev/null || skip "there is no ip (Debian package iproute2)"
    ip netns add "$net-s" 2>/dev/null || skip "network namespaces cannot be made here (needs root)"
    ip -n "$net-s" link add switch type bridge 2>/dev/null || skip "the kernel has no bridges"
    ip -n "$net-s" addr add 10.77.0.1/24 dev switch
    ip -n "$net-s" link set switch up
    ip -n "$net-s" link set lo up
    hosts=$*
    for h in $hosts; do
        ip netns add "$net-$h"
        ip link add "port$h" netns "$net-s" type veth peer name eth0 netns "$net-$h"
        ip -n "$net-s" link set "port$h" master switch up
        ip -n "$net-$h" addr add "10.77.0.1$h/24" dev eth0
        ip -n "$net-$h" link set eth0 up
        ip -n "$net-$h" link set lo up
    done
}

# The line of a host.
line() { # host, up or down
    ip -n "$net-s" link set "port$1" "$2"
}

on() { # host, command …; in the background
    host=$1
    shift
    exec ip netns exec "$net-$host" "$@"
}
