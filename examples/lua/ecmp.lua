-- Spreads flows over the outputs by a hash of one's own: both directions of a flow get the same output.
--
--   FromDevice(eth1) -> ecmp :: Lua(FILE examples/lua/ecmp.lua, ARGS "3");
--   ecmp[0] -> ToDevice(eth2); ecmp[1] -> ToDevice(eth3); ecmp[2] -> ToDevice(eth4);
--
-- The handler ecmp.packets says how many packets each output got.

local outputs = tonumber(brickway.args)
if not outputs or outputs < 1 or outputs > 64 then error("expected ARGS and the number of outputs", 0) end
local packets = {}
for output = 0, outputs - 1 do packets[output] = 0 end

-- The low 32 bits of a product.
local function multiply(a, b)
  return bit.tobit(bit.band(a, 0xffff) * b + (bit.rshift(a, 16) * b % 65536) * 65536)
end

-- Mixes all bits of a number (the finaliser of MurmurHash3).
local function mix(h)
  h = multiply(bit.bxor(h, bit.rshift(h, 16)), 0x85ebca6b)
  h = multiply(bit.bxor(h, bit.rshift(h, 13)), 0xc2b2ae35)
  return bit.bxor(h, bit.rshift(h, 16))
end

function process(batch)
  for _, p in batch:each() do
    local ip, output = p.ip, 0
    if ip then
      -- An exclusive or is the same in both directions.
      local hash = mix(bit.bxor(ip.src, ip.dst, ip.protocol))
      local ports = p.udp or p.tcp
      if ports and not ip.more_fragments then hash = mix(bit.bxor(hash, ports.src_port, ports.dst_port)) end
      output = hash % outputs
    end
    packets[output] = packets[output] + 1
    p:send(output)
  end
end

handlers.read("packets", function()
  local counts = {}
  for output = 0, outputs - 1 do counts[#counts + 1] = packets[output] end
  return table.concat(counts, " ")
end, "join")
