#!/bin/sh
# TCP through a router between two hosts on veth links as they begin: by Linux, by Linux with an access list as nftables, by
# Brickway, by Brickway with generic XDP, and by Brickway with the same list. All take turns. Prints Mbit/s, by iperf3.
#
#   sudo crates/testbed/tcp.sh target/release/brickway [TURNS] [SECONDS] [CONNECTIONS]
set -eu
brickway=$(realpath "$1") turns=${2:-3} seconds=${3:-4} connections=${4:-1}
a=tcp-$$-a r=tcp-$$-r b=tcp-$$-b
folder=$(mktemp -d)
running=
stop() {
    for process in $running; do kill -INT "$process" && wait "$process" || true; done
    running=
}
clean() {
    kill ${server:-} 2> /dev/null || true
    stop
    for name in $a $r $b; do ip netns del $name; done
    rm -r "$folder"
}
trap clean EXIT
trap 'exit 1' INT TERM
for name in $a $r $b; do ip netns add $name; ip -n $name link set lo up; done
ip -n $r link add eth1 type veth peer name eth0 netns $a
ip -n $r link add eth2 type veth peer name eth0 netns $b
for number in 1 2; do
    host=$a; [ $number = 1 ] || host=$b
    ip -n $r addr add 10.0.$number.1/24 dev eth$number
    ip -n $r link set eth$number up
    ip -n $host addr add 10.0.$number.2/24 dev eth0
    ip -n $host link set eth0 up
    ip -n $host route add default via 10.0.$number.1
done
ip netns exec $r sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
printf '10 permit tcp any any\n20 permit icmp any any\n' > "$folder/rules"
printf 'table inet forwarded { chain forward { type filter hook forward priority 0; policy drop;
meta l4proto tcp accept; meta l4proto icmp accept; }; }\n' > "$folder/rules.nft"

server() { # starts iperf3's server and waits until it listens
    ip netns exec $b iperf3 -s --forceflush > "$folder/server" 2>&1 &
    server=$!
    until grep -q listening "$folder/server"; do sleep 0.1; done
}
router() {
    ip netns exec $r "$brickway" run ${ports:-eth1 eth2} --socket "$folder/socket" "$@" > "$folder/log" 2>&1 &
    running=$!
    until grep -q ' runs with ' "$folder/log"; do
        kill -0 $running 2> /dev/null || { cat "$folder/log" >&2; exit 1; }
        sleep 0.1
    done
}
measure() { # the words are the name of the row
    ip netns exec $a ping -n -q -c 5 -i 0.2 10.0.2.2 > /dev/null
    rate=$(ip netns exec $a iperf3 -c 10.0.2.2 -t "$seconds" -P "$connections" -f m |
        awk '/receiver/ { rate = $0 ~ /SUM/ ? $6 : $7 } END { print rate }')
    echo "$rate $*"
}

iperf3 -v | head -1
server
turn=0
while [ $turn -lt "$turns" ]; do
    turn=$((turn + 1))
    measure Linux
    ip netns exec $r nft -f "$folder/rules.nft"
    measure Linux, nftables
    ip netns exec $r nft delete table inet forwarded
    router
    measure Brickway
    stop
    ports='eth1?mode=generic eth2?mode=generic' router
    measure Brickway, generic XDP
    stop
    router --acl "$folder/rules"
    measure Brickway, access list
    stop
done
