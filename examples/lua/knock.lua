-- A port knocker: a TCP port is closed to a host until that has sent UDP packets to the right ports in the right order.
--
--   FromDevice(eth1) -> knock :: Lua(FILE examples/lua/knock.lua, ARGS "22 7000 9000 8000") -> ToDevice(eth2);
--
-- A host has ten seconds from the first knock to the last, and then an hour. Any other UDP packet in between begins anew, so that a
-- scan of ports opens nothing. Knocks are dropped, so that nobody sees where they went. Of IPv4 without VLAN tags; ARP passes, and
-- everything else is dropped. It keeps out who does not know, not who listens: knocks can be seen, and their source forged. The handler
-- knock.open lists the hosts for which the port is open. All packets of a host have to reach the same worker.

local numbers = {}
for number in brickway.args:gmatch("%d+") do numbers[#numbers + 1] = tonumber(number) end
local guarded = table.remove(numbers, 1)
if #numbers < 1 then error("expected ARGS \"PORT KNOCK1 KNOCK2 ...\"", 0) end

local is_knock = {}
for _, port in ipairs(numbers) do is_knock[port] = true end

local PATIENCE, OPEN, MOST = 10, 3600, 10000
-- By host: how many knocks were right and since when, and until when the port is open.
local progress, since, open, knocking = {}, {}, {}, 0

local ARP = 0x0806

local function pass_arp_alone(p)
  local eth = p.eth
  if not eth or eth.type ~= ARP then p:drop("not IPv4") end
end

function process(batch)
  local now = brickway.now()
  for _, p in batch:each() do
    local ip = not p.vlan and p.ip
    local udp, tcp = ip and p.udp, ip and p.tcp
    if udp and not is_knock[udp.dst_port] and progress[ip.src] then progress[ip.src] = 0 end
    if udp and is_knock[udp.dst_port] then
      local host = ip.src
      local done = progress[host]
      if done and since[host] + PATIENCE < now then done = 0 end
      if udp.dst_port == numbers[(done or 0) + 1] then
        if not done and knocking < MOST then progress[host], knocking = 0, knocking + 1 end
        if progress[host] then
          if (done or 0) == 0 then since[host] = now end
          progress[host] = (done or 0) + 1
          if progress[host] == #numbers then
            open[host] = now + OPEN
            progress[host], since[host], knocking = nil, nil, knocking - 1
          end
        end
      elseif done then
        progress[host] = 0
      end
      p:drop("knock")
    elseif tcp and tcp.dst_port == guarded and (open[ip.src] or 0) < now then
      p:drop("port not open")
    elseif ip and ip.protocol == 6 and not tcp then
      -- A fragment, or less than a header.
      p:drop("no TCP header")
    elseif not ip then
      pass_arp_alone(p)
    end
  end
end

function timer()
  local now = brickway.now()
  for host, start in pairs(since) do
    if start + PATIENCE < now then progress[host], since[host], knocking = nil, nil, knocking - 1 end
  end
  for host, ends in pairs(open) do
    if ends < now then open[host] = nil end
  end
  brickway.set_timer(60)
end
brickway.set_timer(60)

function save() return { progress = progress, since = since, open = open, knocking = knocking } end
function restore(saved) progress, since, open, knocking = saved.progress, saved.since, saved.open, saved.knocking end

handlers.read("open", function()
  local hosts = {}
  for host in pairs(open) do hosts[#hosts + 1] = brickway.format_ip(host) end
  table.sort(hosts)
  return table.concat(hosts, "\n")
end, "join")
