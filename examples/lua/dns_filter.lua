-- Keeps a network from being flooded by DNS amplification: answers that nobody inside asked for are dropped.
--
--   FromDevice(inside) -> [0] dns :: Lua(FILE examples/lua/dns_filter.lua);
--   FromDevice(outside) -> [1] dns;
--   dns[0] -> ToDevice(outside); dns[1] -> ToDevice(inside);
--
-- A question from the inside (UDP, to port 53) lets one answer in from the server that was asked, to the port that asked, with the
-- number of the question (RFC 1035, 4.1.1), within five seconds. Of IPv4, behind up to two VLAN tags; IPv6 passes unseen. All packets
-- of a client have to reach the same worker.

local INSIDE = 0
local DNS, LONGEST = 53, 5
local MOST = 100000

-- Two generations of questions, each for the LONGEST time.
local young, old, count = {}, {}, 0

local function key(client, server, port, number) return client .. ">" .. server .. ":" .. port .. "#" .. number end

-- The number of a DNS message behind a UDP header, if there is one.
local function number_of(p, udp)
  local offset = udp.start + 8
  if offset + 12 <= p.length then return p:u16(offset) end
end

function process(batch)
  local input = batch.input
  for _, p in batch:each() do
    p:send(input)
    local ip = p.ip
    local udp = ip and p.udp
    if udp and input == INSIDE and udp.dst_port == DNS then
      local number = number_of(p, udp)
      if number and count < MOST then
        young[key(ip.src, ip.dst, udp.src_port, number)] = true
        count = count + 1
      end
    elseif udp and input ~= INSIDE and udp.src_port == DNS then
      local number = number_of(p, udp)
      local name = number and key(ip.dst, ip.src, udp.dst_port, number)
      if name and (young[name] or old[name]) then
        young[name], old[name] = nil, nil
      else
        p:drop("unasked DNS answer")
      end
    elseif ip and input ~= INSIDE and ip.protocol == 17 and not udp then
      -- A fragment, or less than a header.
      p:drop("no UDP header")
    end
  end
end

function timer()
  old, young, count = young, {}, 0
  brickway.set_timer(LONGEST)
end
brickway.set_timer(LONGEST)

function save() return { young = young, old = old, count = count } end
function restore(saved) young, old, count = saved.young, saved.old, saved.count end
