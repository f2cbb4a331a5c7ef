-- A stateful filter of TCP connections: those inside may open connections to the outside, and nobody outside to the inside.
--
--   FromDevice(inside) -> [0] filter :: Lua(FILE examples/lua/syn_filter.lua);
--   FromDevice(outside) -> [1] filter;
--   filter[0] -> ToDevice(outside); filter[1] -> ToDevice(inside);
--
-- A connection is known from its SYN on, until five minutes without a packet, or half a minute after a FIN or RST. Of IPv4 without
-- VLAN tags; ARP passes, and everything else is dropped. A FIN or RST is believed, whoever sent it. All packets of a connection have
-- to reach the same worker.

local INSIDE, OUTSIDE = 0, 1
local IDLE, CLOSED = 300, 30
local MOST = 200000

-- When each connection is forgotten, by its addresses and ports as the inside sends them.
local connections, count = {}, 0

local function key(inside, outside, inside_port, outside_port)
  return inside .. ":" .. inside_port .. ">" .. outside .. ":" .. outside_port
end

local ARP = 0x0806

local function pass_arp_alone(p)
  local eth = p.eth
  if not eth or eth.type ~= ARP then p:drop("not IPv4") end
end

function process(batch)
  local now, input = brickway.now(), batch.input
  for _, p in batch:each() do
    p:send(input)
    local ip = p.ip
    local tcp = ip and not p.vlan and p.tcp
    if tcp then
      local name
      if input == INSIDE then
        name = key(ip.src, ip.dst, tcp.src_port, tcp.dst_port)
      else
        name = key(ip.dst, ip.src, tcp.dst_port, tcp.src_port)
      end
      local ends = connections[name]
      if ends and ends < now then
        connections[name], ends, count = nil, nil, count - 1
      end
      if input == INSIDE and not ends and tcp.syn and not tcp.has_ack then
        if count < MOST then
          connections[name], count = now + IDLE, count + 1
        else
          p:drop("too many connections")
        end
      elseif not ends then
        p:drop("no connection")
      elseif tcp.fin or tcp.rst then
        connections[name] = now + CLOSED
      elseif ends > now + CLOSED then
        connections[name] = now + IDLE
      end
    elseif ip and ip.protocol == 6 then
      -- A fragment, or less than a header: without ports nobody can say whose it is.
      p:drop("no TCP header")
    elseif not ip or p.vlan then
      pass_arp_alone(p)
    end
  end
end

function timer()
  local now = brickway.now()
  for name, ends in pairs(connections) do
    if ends < now then connections[name], count = nil, count - 1 end
  end
  brickway.set_timer(10)
end
brickway.set_timer(10)

function save() return { connections = connections, count = count } end
function restore(saved) connections, count = saved.connections, saved.count end

handlers.read("connections", function() return count end, "sum")
