-- Counts packets and bytes of frames by the /24 of their IPv4 destination.
--
--   FromDevice(eth1) -> counter :: Lua(FILE examples/lua/prefix_counter.lua) -> ToDevice(eth2);
--
-- The handler counter.top takes a number, and names so many prefixes with the most bytes; counter.prefixes says how many there are.

local MOST = 65536
local packets, bytes, count, others = {}, {}, 0, 0

function process(batch)
  for _, p in batch:each() do
    local ip = p.ip
    if ip then
      local prefix, length = math.floor(ip.dst / 256), p.length
      local known = packets[prefix]
      if known then
        packets[prefix], bytes[prefix] = known + 1, bytes[prefix] + length
      elseif count < MOST then
        packets[prefix], bytes[prefix], count = 1, length, count + 1
      else
        others = others + 1
      end
    end
  end
end

handlers.read("top", function(argument)
  local prefixes = {}
  for prefix in pairs(bytes) do prefixes[#prefixes + 1] = prefix end
  table.sort(prefixes, function(a, b) return bytes[a] > bytes[b] or (bytes[a] == bytes[b] and a < b) end)
  local lines = {}
  for place = 1, math.min(tonumber(argument) or 10, #prefixes) do
    local prefix = prefixes[place]
    lines[place] = string.format("%-18s %10d packets %14d bytes",
      brickway.format_ip(prefix * 256) .. "/24", packets[prefix], bytes[prefix])
  end
  return table.concat(lines, "\n")
end, "join")
handlers.read("prefixes", function() return count end, "sum")
handlers.read("uncounted", function() return others end, "sum")

function save() return { packets = packets, bytes = bytes, count = count, others = others } end
function restore(saved) packets, bytes, count, others = saved.packets, saved.bytes, saved.count, saved.others end
