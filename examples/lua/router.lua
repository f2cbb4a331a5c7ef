-- A router of IPv4 and IPv6: it forwards by Linux's routes and neighbours, and leaves to Linux what it does not do itself.
--
--   brickway lua examples/lua/router.lua eth1 eth2
--
-- The handlers main.forwarded and main.punted count packets; `brickway show handlers main.forwarded` reads one.

-- Frames of senders' offloads, in which many packets are merged, come whole: nothing below needs the end of a packet.
brickway.take_merged()

local forwarded, punted = 0, 0

handlers.read("forwarded", function() return forwarded end, "sum")
handlers.read("punted", function() return punted end, "sum")

function save() return { forwarded, punted } end
function restore(saved) forwarded, punted = saved[1], saved[2] end

for batch in brickway.batches() do
  -- Right headers. What is wrong with the others is counted, and they are dropped.
  local ip = batch:check_ip():union(batch:check_ip6())
  -- Where they go. Packets to this host, without a route or with options are not among these.
  local routed = batch:lookup(ip)
  -- What is too long or has lived too long is Linux's, which sends the ICMP errors.
  local fits = batch:check_mtu(routed)
  local alive = batch:decrement_ttl(fits)
  forwarded = forwarded + batch:apply_routes(alive):pieces()
  -- ARP and all that was left above.
  local rest = batch:undecided()
  punted = punted + rest:pieces()
  batch:punt(rest)
end
