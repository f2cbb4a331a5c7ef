-- What scripts see: batches, packets and headers over the frames' memory, and nothing else that is unsafe.
--
-- Runs once in each state, before the script, with the memory that the element shares with it. No pointer leaves this file: a
-- packet or header is a number of its batch and a place in it. Each function that a script can call looks first whether it was
-- given one of these, by its type; then whether the batch is still there, and the place within the packet.

local shared, host = ...
local ffi, bit = require "ffi", require "bit"
local cast, band, bor, bxor = ffi.cast, bit.band, bit.bor, bit.bxor
local lshift, rshift, bswap, tobit = bit.lshift, bit.rshift, bit.bswap, bit.tobit
local error, tonumber, type, getinfo, rawget = error, tonumber, type, debug.getinfo, rawget
local concat = table.concat
local floor, min, math_ceil, format, string_gmatch = math.floor, math.min, math.ceil, string.format, string.gmatch

-- `packet::Metadata`, and `Shared` of `shared.rs`.
ffi.cdef [[
struct bw_metadata {
  uint16_t data_offset, length, link_offset, network_offset, transport_offset, chunk_bytes, input_port;
  uint8_t packet_type, is_merged;
  void *owner;
  uint8_t annotations[48];
  uint64_t timestamp_ns;
  void *next;
  uint16_t piece_bytes, network, transport, payload;
};
struct bw_shared {
  uint32_t count, generation, input, outputs, is_sorted, masks_used;
  uint64_t now_ns;
  struct bw_metadata **packets;
  uint16_t output[256];
  uint32_t masks[64][8];
  uint32_t is_serving;
  uint32_t lengths[64];
  uint32_t takes_merged;
};
struct bw_batch { const uint32_t generation; };
struct bw_mask { const uint32_t generation, slot; };
struct bw_packet { const uint32_t generation, number; };
struct bw_place { uint32_t generation, slot; };
]]

local METADATA_BYTES, MOST_MASKS, MOST_QUEUES = 128, 64, 64
-- An Ethernet header with two tags.
local LINK_BYTES = 22
local DROPPED, UNDECIDED, QUEUED = 0x8000, 0x7fff, 0x7000
local ctx = cast("struct bw_shared *", shared)
-- Functions of the element (`main_loop.rs`), which compiled code calls as they are.
local host_wait = cast("void (*)(void *)", host.wait)
local host_step = cast("uint32_t (*)(void *, uint32_t, uint32_t, uint32_t, uint32_t)", host.step)
local packet_type, mask_type = ffi.typeof("struct bw_packet"), ffi.typeof("struct bw_mask")
local istype = ffi.istype
local bytes = ffi.typeof("uint8_t *")
local make_packet, make_batch, make_mask

-- Raises an error where the script called what is in this file.
local function fail(message)
  local level = 2
  while true do
    local info = getinfo(level, "S")
    if not info or (info.source ~= "=prelude" and info.what ~= "C") then break end
    level = level + 1
  end
  error(message, level)
end

-- ---- packets ---------------------------------------------------------------------------------------------

local function stale()
  fail("a packet or header was used after its batch had gone on; it is valid in the call of process that got it")
end

-- A value as messages show it.
local function shown(value)
  return type(value) == "string" and format("the string '%s'", value:sub(1, 40)) or tostring(value)
end

-- The metadata of a packet, whose number is below the count as long as its batch is there.
local function metadata(p)
  if not istype(packet_type, p) then fail(format("expected a packet, as in packet:u8(0), not %s", shown(p))) end
  if p.generation ~= ctx.generation or p.number >= ctx.count then stale() end
  return ctx.packets[p.number]
end

local function beyond(offset, size, length)
  fail(format("%d bytes at %s lie outside of the packet's %d", size, tostring(offset), length))
end

-- Where `size` bytes at `offset` of the data are, all of them within it.
local function within(p, offset, size)
  local m = metadata(p)
  if type(offset) ~= "number" then fail(format("expected an offset in bytes, not %s", shown(offset))) end
  if not (offset >= 0 and offset + size <= m.length) then beyond(offset, size, m.length) end
  return cast(bytes, m) + (m.data_offset + floor(offset))
end

local packet = {}

function packet.u8(p, offset) return within(p, offset, 1)[0] end

function packet.u16(p, offset)
  local b = within(p, offset, 2)
  return bor(lshift(b[0], 8), b[1])
end

-- Packets are read and written by bytes: LuaJIT takes accesses of different sizes for accesses to different memory.
local function get32(b, at)
  return b[at] * 16777216 + bor(lshift(b[at + 1], 16), lshift(b[at + 2], 8), b[at + 3])
end

local function put32(b, at, value)
  value = tobit(value)
  b[at], b[at + 1], b[at + 2], b[at + 3] = rshift(value, 24), band(rshift(value, 16), 255), band(rshift(value, 8), 255), band(value, 255)
end

function packet.u32(p, offset) return get32(within(p, offset, 4), 0) end

local function octet(value)
  if type(value) ~= "number" or not (value >= 0 and value <= 255) then
    fail(format("expected an 8-bit number, not %s", shown(value)))
  end
  return band(value, 255)
end

local function short(value)
  if type(value) ~= "number" or not (value >= 0 and value <= 65535) then
    fail(format("expected a 16-bit number, not %s", shown(value)))
  end
  return band(value, 65535)
end

local function long(value)
  if type(value) ~= "number" or not (value >= 0 and value <= 4294967295) then
    fail(format("expected a 32-bit number, not %s", shown(value)))
  end
  return value
end

function packet.set_u8(p, offset, value) within(p, offset, 1)[0] = octet(value) end

function packet.set_u16(p, offset, value)
  local b = within(p, offset, 2)
  value = short(value)
  b[0], b[1] = rshift(value, 8), band(value, 255)
end

function packet.set_u32(p, offset, value)
  put32(within(p, offset, 4), 0, long(value))
end

function packet.bytes(p, offset, count)
  local m = metadata(p)
  offset = offset or 0
  count = count or m.length - offset
  if type(count) ~= "number" or not (count >= 0) then beyond(offset, count, m.length) end
  return ffi.string(within(p, offset, count), count)
end

local function text_of(text)
  if type(text) ~= "string" then fail(format("expected a string, not %s", shown(text))) end
  return text
end

function packet.set_bytes(p, offset, text)
  text_of(text)
  ffi.copy(within(p, offset, #text), text, #text)
end

-- Takes bytes off the front. Headers that are marked stay where they are.
function packet.strip(p, count)
  local m = metadata(p)
  if type(count) ~= "number" or not (count >= 0 and count <= m.length) then beyond(0, count, m.length) end
  count = floor(count)
  m.data_offset, m.length = m.data_offset + count, m.length - count
end

-- Puts bytes before the front, which hold whatever was there.
function packet.prepend(p, count)
  local m = metadata(p)
  local room = m.data_offset - METADATA_BYTES
  if type(count) ~= "number" or not (count >= 0 and count <= room) then
    fail(format("no room for %s bytes before the packet; there are %d", tostring(count), room))
  end
  if m.is_merged ~= 0 and m.data_offset - count < m.network - LINK_BYTES then
    fail("several packets are merged in this one: nothing but a link header of up to 22 bytes may stand before it")
  end
  count = floor(count)
  -- In this order: a call may be stopped in between, and the packet must end in its frame then too.
  m.data_offset = m.data_offset - count
  m.length = m.length + count
end

-- The end of a merged packet is not that of any packet on a link.
local function only_single(m)
  if m.is_merged ~= 0 then fail("the end of a packet in which several are merged cannot be moved") end
end

-- Puts bytes behind the end, which hold whatever was there.
function packet.append(p, count)
  local m = metadata(p)
  only_single(m)
  local room = m.chunk_bytes - m.data_offset - m.length
  if type(count) ~= "number" or not (count >= 0 and count <= room) then
    fail(format("no room for %s bytes behind the packet; there are %d", tostring(count), room))
  end
  m.length = m.length + floor(count)
end

function packet.truncate(p, length)
  local m = metadata(p)
  only_single(m)
  if type(length) ~= "number" or not (length >= 0) then fail(format("%s is no length", tostring(length))) end
  if length < m.length then m.length = floor(length) end
end

local function annotation(p, offset, size)
  local m = metadata(p)
  if type(offset) ~= "number" or not (offset >= 0 and offset + size <= 48) then
    fail(format("an annotation of %d bytes at %s; there are 48", size, tostring(offset)))
  end
  return m.annotations + floor(offset)
end

function packet.annotation_u8(p, offset) return annotation(p, offset, 1)[0] end
function packet.set_annotation_u8(p, offset, value) annotation(p, offset, 1)[0] = octet(value) end
-- Annotations are in the machine's byte order.
function packet.annotation_u32(p, offset)
  local b = annotation(p, offset, 4)
  return b[3] * 16777216 + bor(lshift(b[2], 16), lshift(b[1], 8), b[0])
end
function packet.set_annotation_u32(p, offset, value) put32(annotation(p, offset, 4), 0, bswap(tobit(long(value)))) end

-- ---- where packets go ------------------------------------------------------------------------------------

local reasons, reason_count = {}, 0
local MOST_REASONS = 32

local function reason_number(reason)
  local known = reasons[reason]
  if not known then
    if type(reason) ~= "string" then fail(format("expected a reason, not %s", shown(reason))) end
    if #reason > 64 then fail(format("drop reason of %d characters: expected 1 to 64 characters", #reason)) end
    if reason_count == MOST_REASONS then fail(format("more than %d different drop reasons", MOST_REASONS)) end
    local why
    known, why = host.drop_reason(reason)
    if why then fail(why) end
    reason_count = reason_count + 1
    reasons[reason] = known
  end
  return known
end

local function no_output(output)
  fail(format("output %s is not connected; there are %d, from 0 on", tostring(output), ctx.outputs))
end

-- Sends the packet by an output when process returns.
function packet.send(p, output)
  metadata(p)
  if type(output) ~= "number" or not (output >= 0 and output < ctx.outputs) then no_output(output) end
  ctx.output[p.number], ctx.is_sorted = output, 1
end

-- Drops the packet when process returns, counted under a reason.
function packet.drop(p, reason)
  metadata(p)
  ctx.output[p.number], ctx.is_sorted = DROPPED + reason_number(reason or "dropped by the script"), 1
end

-- ---- queues -----------------------------------------------------------------------------------------------

local queue_count, queue_numbers = 0, setmetatable({}, { __mode = "k" })
local queue_methods = {}

-- The number of a queue.
local function queue_number(queue)
  return queue_numbers[queue] or fail(format("expected a queue, as of brickway.queue, not %s", shown(queue)))
end

function queue_methods.length(queue)
  local number = queue_number(queue)
  return number < MOST_QUEUES and ctx.lengths[number] or 0
end

local queue_metatable = {
  __index = function(_, key) return queue_methods[key] or fail(format("a queue has no '%s'", tostring(key))) end,
  __newindex = function() fail("a queue is not changed; its settings are those of brickway.queue") end,
  __metatable = false,
}

-- Whether the element has taken a wish.
local function wished(why) if why then fail(why) end end

-- A number among named settings.
local function setting(settings, name, default, least, most)
  -- Raw, as no script may run between a check and what it is for.
  local value = rawget(settings, name)
  if value == nil then value = default end
  if type(value) ~= "number" or not (value >= least and value <= most) then
    fail(format("%s is %s; expected a number from %s to %s", name, shown(value), tostring(least), tostring(most)))
  end
  return value
end

local function settings_of(settings, known)
  if type(settings) ~= "table" then fail(format("expected settings, as in { output = 0 }, not %s", shown(settings))) end
  for name in pairs(settings) do
    if not known[name] then fail(format("no setting '%s'", tostring(name))) end
  end
  return settings
end

local QUEUE_SETTINGS = { output = true, capacity = true, priority = true, red_min = true, red_max = true, red_probability = true }

-- Makes a queue of an output: `brickway.queue { output = 0, capacity = 512, priority = 1 }`.
local function make_queue(settings)
  settings_of(settings, QUEUE_SETTINGS)
  local output = floor(setting(settings, "output", nil, 0, ctx.outputs - 1))
  local capacity = floor(setting(settings, "capacity", 512, 1, 65536))
  local priority = floor(setting(settings, "priority", 100, 0, 255))
  local red_min, red_max, red_probability
  if rawget(settings, "red_min") ~= nil then
    red_min = setting(settings, "red_min", nil, 0, capacity)
    red_max = setting(settings, "red_max", capacity, red_min + 1, 65536)
    red_probability = setting(settings, "red_probability", 0.02, 0, 1)
  end
  if queue_count >= MOST_QUEUES then fail(format("more than %d queues", MOST_QUEUES)) end
  wished(host.queue(output, capacity, priority, red_min, red_max or 0, red_probability or 0))
  local queue = setmetatable({}, queue_metatable)
  queue_numbers[queue] = queue_count
  queue_count = queue_count + 1
  return queue
end

-- Has the packet wait in a queue when process returns.
function packet.enqueue(p, queue)
  metadata(p)
  ctx.output[p.number], ctx.is_sorted = QUEUED + queue_number(queue), 1
end

-- ---- headers ---------------------------------------------------------------------------------------------

-- The one's complement sum of `checksum` after a 16-bit word changed (RFC 1624, equation 3).
local function adjusted(checksum, old, new)
  local sum = bxor(checksum, 0xffff) + bxor(old, 0xffff) + new
  sum = band(sum, 0xffff) + rshift(sum, 16)
  sum = band(sum, 0xffff) + rshift(sum, 16)
  return bxor(sum, 0xffff)
end

local function get16(b, at) return bor(lshift(b[at], 8), b[at + 1]) end
local function put16(b, at, value) b[at], b[at + 1] = rshift(value, 8), band(value, 255) end

local function adjust(b, at, old, new) put16(b, at, adjusted(get16(b, at), old, new)) end

-- The same of a checksum of UDP, where 0 stands for none (RFC 768).
local function adjust_udp(b, at, old, new)
  local checksum = get16(b, at)
  if checksum ~= 0 then
    checksum = adjusted(checksum, old, new)
    put16(b, at, checksum ~= 0 and checksum or 0xffff)
  end
end

-- Where a header is. Only the functions of its own type call this, with a header of that type.
local function header(v)
  if v.generation ~= ctx.generation or v.number >= ctx.count then stale() end
  return cast(bytes, ctx.packets[v.number]) + v.offset
end

-- Reads and writes of fields, each a function of its own, so that the compiler knows its place as a constant.
local function build(code, ...)
  local fill = { ... }
  return assert(loadstring((code:gsub("%$(%d)", function(i) return tostring(fill[tonumber(i)]) end)), "=prelude"))
end

local READ = {
  [8] = "local header = ...; return function(v) return header(v)[$1] end",
  [16] = "local header, bor, lshift = ...; return function(v) local b = header(v); return bor(lshift(b[$1], 8), b[$1 + 1]) end",
  [32] = "local header, _, _, get32 = ...; return function(v) return get32(header(v), $1) end",
}

local function reader(bits, at) return build(READ[bits], at)(header, bor, lshift, get32) end

-- Each writes a field and has the checksums follow: `change(b, old, new, v)` for each 16-bit word.
local WRITE = {
  -- Of an octet: where it is, where its word begins, what of the word stays, and how far the octet is from its low end.
  [8] = [[local header, octet, change, get16, band, bor, lshift = ...
    return function(v, value)
      local b = header(v)
      local old = get16(b, $2)
      value = octet(value)
      b[$1] = value
      change(b, old, bor(band(old, $3), lshift(value, $4)), v)
    end]],
  [16] = [[local header, short, change, get16, band, bor, lshift, put16 = ...
    return function(v, value)
      local b = header(v)
      local old = get16(b, $1)
      value = short(value)
      put16(b, $1, value)
      change(b, old, value, v)
    end]],
  [32] = [[local header, long, change, get16, band, bor, lshift, put16, put32 = ...
    return function(v, value)
      local b = header(v)
      local high, low = get16(b, $1), get16(b, $1 + 2)
      put32(b, $1, long(value))
      change(b, high, get16(b, $1), v)
      change(b, low, get16(b, $1 + 2), v)
    end]],
}
local CHECK = { [8] = octet, [16] = short, [32] = long }

local function writer(bits, at, change)
  local odd = at % 2
  local code = build(WRITE[bits], at, at - odd, odd == 0 and 0x00ff or 0xff00, odd == 0 and 8 or 0)
  return code(header, CHECK[bits], change, get16, band, bor, lshift, put16, put32)
end

local function unchanged() end

-- A type of header views: fields by name { bits, offset [, change] } and more functions.
local function view(name, fields, readers, writers)
  -- Where the header is, from the start of the packet's data.
  readers.start = function(v)
    header(v)
    return v.offset - ctx.packets[v.number].data_offset
  end
  for field, place in pairs(fields) do
    readers[field] = reader(place[1], place[2])
    writers[field] = writer(place[1], place[2], place[3] or unchanged)
  end
  return ffi.metatype(ffi.typeof("struct { const uint32_t generation, number, offset; }"), {
    __index = function(v, key)
      local read = readers[key]
      if read then return read(v) end
      fail(format("%s has no field '%s'", name, tostring(key)))
    end,
    __newindex = function(v, key, value)
      local write = writers[key]
      if not write then fail(format("%s has no field '%s' to set", name, tostring(key))) end
      write(v, value)
    end,
    __tostring = function() return name .. " header" end,
  })
end

local function text_reader(at, count) return function(v) return ffi.string(header(v) + at, count) end end

local function text_writer(at, count)
  return function(v, text)
    if #text_of(text) ~= count then fail(format("expected a string of %d bytes, not of %d", count, #text)) end
    ffi.copy(header(v) + at, text, count)
  end
end

local ethernet = view("ethernet", { type = { 16, 12 } },
  { dst = text_reader(0, 6), src = text_reader(6, 6) }, { dst = text_writer(0, 6), src = text_writer(6, 6) })

local vlan = view("vlan", { tci = { 16, 0 }, type = { 16, 2 } },
  { id = function(v) return band(get16(header(v), 0), 0xfff) end, priority = function(v) return rshift(header(v)[0], 5) end },
  { id = function(v, value)
      if not (value >= 0 and value <= 4095) then fail(format("%s is no VLAN", tostring(value))) end
      local b = header(v)
      put16(b, 0, bor(band(get16(b, 0), 0xf000), value))
    end })

local function follow_ip(b, old, new) adjust(b, 10, old, new) end

-- Whether the transport header is in this packet: of a later fragment it is elsewhere.
local function is_first(b) return band(get16(b, 6), 0x1fff) == 0 end

-- An address: the checksums of TCP and UDP are over it too (RFC 9293, 3.1; RFC 768), if they are in the packet.
local function follow_address(b, old, new, v)
  adjust(b, 10, old, new)
  if is_first(b) then
    local m = ctx.packets[v.number]
    local transport = lshift(band(b[0], 15), 2)
    local room = min(get16(b, 2), m.data_offset + m.length - v.offset) - transport
    if b[9] == 17 and room >= 8 then
      adjust_udp(b, transport + 6, old, new)
    elseif b[9] == 6 and room >= 20 then
      adjust(b, transport + 16, old, new)
    end
  end
end

local ipv4 = view("ip", {
    tos = { 8, 1, follow_ip }, total_length = { 16, 2, follow_ip }, id = { 16, 4, follow_ip },
    ttl = { 8, 8, follow_ip }, protocol = { 8, 9, follow_ip }, checksum = { 16, 10 },
    src = { 32, 12, follow_address }, dst = { 32, 16, follow_address },
  }, {
    version = function(v) return rshift(header(v)[0], 4) end,
    header_length = function(v) return band(header(v)[0], 15) * 4 end,
    dscp = function(v) return rshift(header(v)[1], 2) end,
    ecn = function(v) return band(header(v)[1], 3) end,
    dont_fragment = function(v) return band(header(v)[6], 0x40) ~= 0 end,
    more_fragments = function(v) return band(header(v)[6], 0x20) ~= 0 end,
    fragment_offset = function(v) return band(get16(header(v), 6), 0x1fff) * 8 end,
  }, {
    dscp = function(v, value)
      if not (value >= 0 and value <= 63) then fail(format("%s is no DSCP", tostring(value))) end
      local b = header(v)
      local old = get16(b, 0)
      local new = bor(band(old, 0xff03), lshift(band(value, 63), 2))
      b[1] = band(new, 255)
      follow_ip(b, old, new)
    end,
  }, {})

local ipv6 = view("ip6", {
    payload_length = { 16, 4 }, next_header = { 8, 6 }, hop_limit = { 8, 7 },
  }, {
    src = text_reader(8, 16), dst = text_reader(24, 16),
    traffic_class = function(v) return band(rshift(get16(header(v), 0), 4), 255) end,
    flow_label = function(v)
      local b = header(v)
      return band(b[1], 15) * 65536 + get16(b, 2)
    end,
  }, {})

local function follow_udp(b, old, new) adjust_udp(b, 6, old, new) end
local function follow_tcp(b, old, new) adjust(b, 16, old, new) end
local function follow_icmp(b, old, new) adjust(b, 2, old, new) end

local udp = view("udp", {
    src_port = { 16, 0, follow_udp }, dst_port = { 16, 2, follow_udp }, length = { 16, 4, follow_udp }, checksum = { 16, 6 },
  }, {}, {})

local tcp = view("tcp", {
    src_port = { 16, 0, follow_tcp }, dst_port = { 16, 2, follow_tcp }, seq = { 32, 4, follow_tcp }, ack = { 32, 8, follow_tcp },
    flags = { 8, 13, follow_tcp }, window = { 16, 14, follow_tcp }, checksum = { 16, 16 },
  }, {
    header_length = function(v) return rshift(header(v)[12], 4) * 4 end,
    fin = function(v) return band(header(v)[13], 1) ~= 0 end,
    syn = function(v) return band(header(v)[13], 2) ~= 0 end,
    rst = function(v) return band(header(v)[13], 4) ~= 0 end,
    psh = function(v) return band(header(v)[13], 8) ~= 0 end,
    has_ack = function(v) return band(header(v)[13], 16) ~= 0 end,
  }, {})

local icmp = view("icmp", {
    type = { 8, 0, follow_icmp }, code = { 8, 1, follow_icmp }, checksum = { 16, 2 },
    id = { 16, 4, follow_icmp }, seq = { 16, 6, follow_icmp },
  }, {}, {})

-- ---- which header is where -------------------------------------------------------------------------------

local function end_of(m) return m.data_offset + m.length end

-- Where the network header is, in the chunk, and which EtherType it has if a frame says so: where it is marked, else behind the
-- Ethernet header and up to two VLAN tags.
local function find_network(p)
  local m = metadata(p)
  if m.network_offset ~= 0 then return m.network_offset, nil end
  local at, last = m.data_offset, m.data_offset + m.length
  if at + 14 > last then return nil end
  local b = cast(bytes, metadata(p))
  local kind = get16(b, at + 12)
  at = at + 14
  if kind == 0x8100 or kind == 0x88a8 then
    if at + 4 > last then return nil end
    kind, at = get16(b, at + 2), at + 4
    if kind == 0x8100 then
      if at + 4 > last then return nil end
      kind, at = get16(b, at + 2), at + 4
    end
  end
  return at, kind
end

local function find_ipv4(p)
  local at, kind = find_network(p)
  if not at or (kind and kind ~= 0x0800) then return nil end
  local m = metadata(p)
  if at + 20 > end_of(m) then return nil end
  local first = cast(bytes, metadata(p))[at]
  local length = lshift(band(first, 15), 2)
  if rshift(first, 4) ~= 4 or length < 20 or at + length > end_of(m) then return nil end
  return at, length
end

local function find_ipv6(p)
  local at, kind = find_network(p)
  if not at or (kind and kind ~= 0x86dd) then return nil end
  if at + 40 > end_of(metadata(p)) or rshift(cast(bytes, metadata(p))[at], 4) ~= 6 then return nil end
  return at
end

-- Where the transport header is, if it is of this protocol and the packet has so many bytes of it. Extension headers of IPv6 are
-- not walked.
local function find_transport(p, protocol, protocol6, size)
  local at, length = find_ipv4(p)
  local b = cast(bytes, metadata(p))
  if at then
    if b[at + 9] ~= protocol or not is_first(b + at) then return nil end
    at = at + length
  else
    at = find_ipv6(p)
    if not at or b[at + 6] ~= protocol6 then return nil end
    at = at + 40
  end
  if at + size > end_of(metadata(p)) then return nil end
  return at
end

local getters = {
  length = function(p) return metadata(p).length end,
  pieces = function(p)
    local m = metadata(p)
    if m.is_merged == 0 then return 1 end
    local bytes = m.data_offset + m.length - m.payload
    return bytes > m.piece_bytes and math_ceil(bytes / m.piece_bytes) or 1
  end,
  input_port = function(p) return metadata(p).input_port end,
  packet_type = function(p) return metadata(p).packet_type end,
  timestamp = function(p) return tonumber(metadata(p).timestamp_ns) / 1e9 end,
  paint = function(p) return metadata(p).annotations[16] end,
  destination = function(p) return get32(metadata(p).annotations, 0) end,
  network_offset = function(p)
    local m = metadata(p)
    if m.network_offset ~= 0 then return m.network_offset - m.data_offset end
  end,
  output = function(p)
    metadata(p)
    local output = ctx.output[p.number]
    if output < QUEUED then return output end
  end,
}

local setters = {
  paint = function(p, value) metadata(p).annotations[16] = octet(value) end,
  destination = function(p, value) put32(metadata(p).annotations, 0, long(value)) end,
}

-- Where the Ethernet header is: where it is marked, else in front, unless the network header is there.
local function find_ethernet(p)
  local m = metadata(p)
  if m.link_offset ~= 0 then return m.link_offset, m end
  if m.network_offset ~= 0 and m.network_offset < m.data_offset + 14 then return end_of(m), m end
  return m.data_offset, m
end

function getters.eth(p)
  local at, m = find_ethernet(p)
  if at + 14 > end_of(m) then return nil end
  return ethernet(p.generation, p.number, at)
end

function getters.vlan(p)
  local at, m = find_ethernet(p)
  if at + 18 > end_of(m) then return nil end
  local kind = get16(cast(bytes, metadata(p)), at + 12)
  if kind ~= 0x8100 and kind ~= 0x88a8 then return nil end
  return vlan(p.generation, p.number, at + 14)
end

function getters.ip(p)
  local at = find_ipv4(p)
  if at then return ipv4(p.generation, p.number, at) end
end

function getters.ip6(p)
  local at = find_ipv6(p)
  if at then return ipv6(p.generation, p.number, at) end
end

function getters.udp(p)
  local at = find_transport(p, 17, 17, 8)
  if at then return udp(p.generation, p.number, at) end
end

function getters.tcp(p)
  local at = find_transport(p, 6, 6, 20)
  if at then return tcp(p.generation, p.number, at) end
end

function getters.icmp(p)
  local at = find_transport(p, 1, 58, 8)
  if at then return icmp(p.generation, p.number, at) end
end

make_packet = ffi.metatype("struct bw_packet", {
  __index = function(p, key)
    local get = getters[key]
    if get then return get(p) end
    return packet[key] or fail(format("a packet has no '%s'", tostring(key)))
  end,
  __newindex = function(p, key, value)
    local set = setters[key]
    if not set then fail(format("a packet has no '%s' to set", tostring(key))) end
    set(p, value)
  end,
  __tostring = function(p) return format("packet of %d bytes", metadata(p).length) end,
})

-- ---- batches ---------------------------------------------------------------------------------------------

local batch = {}

local function packet_at(number)
  if type(number) ~= "number" or not (number >= 1 and number <= ctx.count) then
    fail(format("no packet %s in a batch of %d, which has packets from 1 on", tostring(number), ctx.count))
  end
  number = floor(number) - 1
  return make_packet(ctx.generation, number)
end

local function following(_, number)
  if type(number) ~= "number" or not (number >= 0) then fail("expected a number of a packet") end
  if number < ctx.count then return number + 1, make_packet(ctx.generation, number) end
end

-- Goes over the packets: `for number, p in batch:each() do`.
function batch.each(b) return following, b, 0 end

-- Sends all packets by an output when process returns.
function batch.send(_, output)
  if type(output) ~= "number" or not (output >= 0 and output < ctx.outputs) then no_output(output) end
  for number = 0, ctx.count - 1 do ctx.output[number] = output end
  ctx.is_sorted = 1
end

-- Drops all packets when process returns, counted under a reason.
function batch.drop(_, reason)
  local output = DROPPED + reason_number(reason or "dropped by the script")
  for number = 0, ctx.count - 1 do ctx.output[number] = output end
  ctx.is_sorted = 1
end

-- ---- masks -----------------------------------------------------------------------------------------------

local mask = {}
-- Masks are made once, for the last few batches each, and handed out again: what is made for each batch has to be collected. So one
-- that is kept is known as stale for these batches at least, and afterwards until its place is handed out again. (Packets are made
-- anew: compiled loops need not make them at all.)
local SETS, masks, mask_places = 8, {}, {}

local function check_mask(m)
  if not istype(mask_type, m) then fail(format("expected a mask, as in mask:set(1), not %s", shown(m))) end
  if m.generation ~= ctx.generation then stale() end
end

local function bits_of(m)
  check_mask(m)
  return ctx.masks[m.slot]
end

local function new_mask()
  if ctx.count == 0 then fail("a mask outside of a batch; expected one in process or the main loop") end
  local slot = ctx.masks_used
  if slot >= MOST_MASKS then fail(format("more than %d masks of one batch", MOST_MASKS)) end
  ctx.masks_used = slot + 1
  local generation = ctx.generation
  local set = band(generation, SETS - 1)
  mask_places[set][slot].generation = generation
  return masks[set][slot]
end

local function place_of(number)
  if type(number) ~= "number" or not (number >= 1 and number <= ctx.count) then
    fail(format("no packet %s in a batch of %d, which has packets from 1 on", tostring(number), ctx.count))
  end
  return floor(number) - 1
end

function mask.has(m, number)
  local place = place_of(number)
  return band(bits_of(m)[rshift(place, 5)], lshift(1, band(place, 31))) ~= 0
end

function mask.set(m, number)
  local place, bits = place_of(number), bits_of(m)
  local word = rshift(place, 5)
  bits[word] = bor(bits[word], lshift(1, band(place, 31)))
end

function mask.clear(m, number)
  local place, bits = place_of(number), bits_of(m)
  local word = rshift(place, 5)
  bits[word] = band(bits[word], bit.bnot(lshift(1, band(place, 31))))
end

-- Steps over a whole batch are ours, by their number: from a mask or two, to a mask.
local STEP = {
  check_ip = 0, lookup = 1, check_mtu = 2, decrement_ttl = 3, apply_routes = 4, punt = 5,
  undecided = 6, all = 7, none = 8, union = 9, minus = 10, intersection = 11, send = 12, check_ip6 = 14, match = 15,
}
local ALL, REFUSED, COUNT, PIECES = MOST_MASKS, 0xffffffff, 13, 16

local function new_mask_by(step, a, b)
  local to = new_mask()
  if host_step(ctx, step, a, b, to.slot) == REFUSED then fail("this element has no forwarding tables; LuaRouter has them") end
  return to
end

function mask.count(m)
  check_mask(m)
  return host_step(ctx, COUNT, m.slot, 0, 0)
end

-- Packets, of those that are merged each by itself.
function mask.pieces(m)
  check_mask(m)
  return host_step(ctx, PIECES, m.slot, 0, 0)
end

function mask.is_empty(m) return mask.count(m) == 0 end

for _, name in ipairs { "union", "minus", "intersection" } do
  local step = STEP[name]
  mask[name] = function(m, other)
    check_mask(m)
    check_mask(other)
    return new_mask_by(step, m.slot, other.slot)
  end
end

local function next_in(m, number)
  if type(number) ~= "number" or not (number >= 0) then fail("expected a number of a packet") end
  for place = number, ctx.count - 1 do
    if band(bits_of(m)[rshift(place, 5)], lshift(1, band(place, 31))) ~= 0 then return place + 1, packet_at(place + 1) end
  end
end

-- Goes over the packets of a mask: `for number, p in mask:each() do`.
function mask.each(m) return next_in, m, 0 end

-- Sends the packets of a mask by an output.
function mask.send(m, output)
  if type(output) ~= "number" or not (output >= 0 and output < ctx.outputs) then no_output(output) end
  check_mask(m)
  host_step(ctx, STEP.send, m.slot, floor(output), 0)
end

-- Has the packets of a mask wait in a queue.
function mask.enqueue(m, queue)
  check_mask(m)
  host_step(ctx, STEP.send, m.slot, QUEUED + queue_number(queue), 0)
end

-- Drops the packets of a mask, counted under a reason.
function mask.drop(m, reason)
  check_mask(m)
  host_step(ctx, STEP.send, m.slot, DROPPED + reason_number(reason or "dropped by the script"), 0)
end

make_mask = ffi.metatype("struct bw_mask", {
  __index = function(_, key) return mask[key] or fail(format("a mask has no '%s'", tostring(key))) end,
  __newindex = function() fail("bits of masks are set by mask:set(number)") end,
  __len = function(m) return mask.count(m) end,
})

for set = 0, SETS - 1 do
  masks[set], mask_places[set] = {}, {}
  for slot = 0, MOST_MASKS - 1 do
    masks[set][slot] = make_mask(0, slot)
    mask_places[set][slot] = cast("struct bw_place *", masks[set][slot])
  end
end

-- Packets, of those that are merged each by itself.
function batch.pieces() return host_step(ctx, PIECES, ALL, 0, 0) end

-- All packets; a mask without packets; those of which nothing has been said yet.
function batch.all() return new_mask_by(STEP.all, 0, 0) end
function batch.none() return new_mask_by(STEP.none, 0, 0) end
function batch.undecided() return new_mask_by(STEP.undecided, 0, 0) end

-- The slot of a mask that was given, or all packets.
local function slot_of(from)
  if from == nil then return ALL end
  check_mask(from)
  return from.slot
end

local filter_numbers = setmetatable({}, { __mode = "k" })

-- Those of a mask that a filter is about: `batch:match(brickway.filter("udp port 53"), mask)`.
function batch.match(_, filter, from)
  local number = filter_numbers[filter] or fail(format("expected a filter, as of brickway.filter, not %s", shown(filter)))
  return new_mask_by(STEP.match, slot_of(from), number)
end

-- The steps of forwarding, each over a mask or all packets.
for _, name in ipairs { "check_ip", "check_ip6", "lookup", "check_mtu", "decrement_ttl", "apply_routes", "punt" } do
  local step = STEP[name]
  batch[name] = function(_, from) return new_mask_by(step, slot_of(from), 0) end
end

make_batch = ffi.metatype("struct bw_batch", {
  __index = function(_, key)
    if type(key) == "number" then return packet_at(key) end
    if key == "count" then return ctx.count end
    if key == "input" then return ctx.input end
    return batch[key] or fail(format("a batch has no '%s'", tostring(key)))
  end,
  __newindex = function() fail("the packets of a batch are not replaced") end,
  __len = function() return ctx.count end,
})

-- ---- addresses -------------------------------------------------------------------------------------------

local brickway = {}

function brickway.ip(text)
  local a, b, c, d = tostring(text):match("^(%d+)%.(%d+)%.(%d+)%.(%d+)$")
  a, b, c, d = tonumber(a), tonumber(b), tonumber(c), tonumber(d)
  if not a or a > 255 or b > 255 or c > 255 or d > 255 then
    fail(format("'%s' is no IPv4 address; expected one like 192.0.2.1", tostring(text)))
  end
  return ((a * 256 + b) * 256 + c) * 256 + d
end

function brickway.format_ip(address)
  long(address)
  return format("%d.%d.%d.%d", floor(address / 16777216), floor(address / 65536) % 256, floor(address / 256) % 256, address % 256)
end

-- An IPv6 address as the 16 bytes that `ip6.src` is compared with.
function brickway.ip6(text)
  local address, why = host.ip6(tostring(text))
  return address or fail(why)
end

-- Seconds since 1970, as of the start of the worker's turn.
function brickway.now() return tonumber(ctx.now_ns) / 1e9 end

function brickway.log(...)
  local texts = { ... }
  local count = min(select("#", ...), 100)
  for i = 1, count do texts[i] = tostring(texts[i]):sub(1, 500) end
  host.log(concat(texts, " ", 1, count))
end

-- Calls `timer(key)` in so many seconds. A timer of the same key that was set before is replaced.
function brickway.set_timer(seconds, key)
  if type(seconds) ~= "number" or not (seconds >= 0 and seconds < 1e9) then fail(format("%s is no time in seconds", tostring(seconds))) end
  key = key or 0
  if type(key) ~= "number" or not (key >= 0 and key < 1024) then fail(format("timer %s; expected 0 to 1023", tostring(key))) end
  -- Not more often than a thousand times a second, so that packets have their turn.
  host.set_timer(seconds < 0.001 and 0.001 or seconds, floor(key))
end

brickway.queue = make_queue

-- Has packets in which several are merged come whole from now on.
function brickway.take_merged() ctx.takes_merged = 1 end

-- Compiles an expression of IPClassifier, for `batch:match`.
function brickway.filter(expression)
  local number, why = host.filter(text_of(expression))
  if not number then fail(why) end
  local filter = setmetatable({}, { __metatable = false })
  filter_numbers[filter] = number
  return filter
end

local OUTPUT_SETTINGS = { output = true, rate = true, batch = true, timeout = true }

-- Says how an output takes packets: `brickway.pace { output = 0, rate = 1e9, batch = 32, timeout = 1e-4 }`.
function brickway.pace(settings)
  settings_of(settings, OUTPUT_SETTINGS)
  local output = floor(setting(settings, "output", nil, 0, ctx.outputs - 1))
  local rate = floor(setting(settings, "rate", 0, 0, 1e12))
  local batch = floor(setting(settings, "batch", 1, 1, 256))
  wished(host.output(output, rate, batch, setting(settings, "timeout", 1e-4, 0, 1)))
end

-- Sends a new packet of these bytes by an output, when the call returns.
function brickway.transmit(text, output)
  output = output or 0
  if type(output) ~= "number" or not (output >= 0 and output < ctx.outputs) then no_output(output) end
  if #text_of(text) > 65535 then fail(format("a packet of %d bytes", #text)) end
  local why = host.transmit(text, floor(output))
  if why then fail(why) end
end

-- ---- what runs -------------------------------------------------------------------------------------------

-- Libraries whose functions reach neither memory nor files.
local safe = {
  "assert", "error", "ipairs", "next", "pairs", "pcall", "rawequal", "rawget", "rawset", "select", "setmetatable", "tonumber",
  "tostring", "type", "unpack", "_VERSION",
}
local environment = { brickway = brickway, handlers = {} }
for _, name in ipairs(safe) do environment[name] = _G[name] end
for _, name in ipairs { "string", "table", "math", "bit", "coroutine" } do
  local copy = {}
  for key, value in pairs(_G[name]) do copy[key] = value end
  environment[name] = copy
end
-- Functions in C run to their end whatever the budget, so their work is bounded before it begins; and calls from them back into the
-- script take room on the thread's stack, so there are only so many within each other.
local MOST_TEXT, MOST_STEPS, MOST_SORTED, DEEPEST = 16 * 1024 * 1024, 2e8, 200000, 16
local depth = 0

local function protected(ok, ...)
  depth = depth - 1
  if not ok then error((...), 0) end
  return ...
end

local function enter()
  if depth >= DEEPEST then fail(format("more than %d calls from library functions within each other", DEEPEST)) end
  depth = depth + 1
end

-- What a pattern may cost: each quantifier, and each reference to a capture, may try each length of the text, and a set is as long as
-- the pattern at most.
local function bounded(text, pattern, is_plain)
  text, pattern = tostring(text), tostring(pattern)
  local quantifiers = 1
  if not is_plain then
    for _ in string_gmatch(pattern, "[%*%+%-%?b]") do quantifiers = quantifiers + 1 end
    for _ in string_gmatch(pattern, "%%%d") do quantifiers = quantifiers + 1 end
  end
  if (#text + 1) ^ quantifiers * (#pattern + 1) > MOST_STEPS then
    fail(format("a pattern of %d characters and a text of %d are too much work", #pattern, #text))
  end
end

local plain = { find = string.find, match = string.match, gmatch = string.gmatch, gsub = string.gsub, rep = string.rep }
local sort, resume_coroutine, create_coroutine = table.sort, coroutine.resume, coroutine.create

local bounds = {
  find = function(text, pattern, start, is_plain)
    bounded(text, pattern, is_plain)
    return plain.find(text, pattern, start, is_plain)
  end,
  match = function(text, pattern, start)
    bounded(text, pattern)
    return plain.match(text, pattern, start)
  end,
  gmatch = function(text, pattern)
    bounded(text, pattern)
    return plain.gmatch(text, pattern)
  end,
  gsub = function(text, pattern, by, most)
    bounded(text, pattern)
    if type(by) == "string" or type(by) == "number" then
      text, by = tostring(text), tostring(by)
      -- Each match may become all of it, and each of its references a text as long as the whole.
      local _, references = plain.gsub(by, "%%", "")
      if (#text + 1) * (#by + references * #text) > MOST_STEPS then
        fail(format("a text of %d characters and a replacement of %d are too much work", #text, #by))
      end
      return plain.gsub(text, pattern, by, most)
    end
    enter()
    return protected(pcall(plain.gsub, text, pattern, by, most))
  end,
  rep = function(text, count, separator)
    local size = #tostring(text) + #(separator or "")
    if (tonumber(count) or 0) * size > MOST_TEXT then fail(format("a string of more than %d bytes", MOST_TEXT)) end
    return plain.rep(text, count, separator)
  end,
}
-- Compiled code that a script writes itself could do anything. Methods of strings are those of the global table.
environment.string.dump, string.dump = nil, nil
for name, bound in pairs(bounds) do environment.string[name], string[name] = bound, bound end

-- Between comparisons in Lua a call can be stopped.
local function less(a, b) return a < b end

function environment.table.sort(list, is_less)
  if #list > MOST_SORTED then fail(format("a list of %d to sort; at most %d", #list, MOST_SORTED)) end
  enter()
  return protected(pcall(sort, list, is_less or less))
end

function environment.table.concat(list, separator, first, last)
  local size, between = 0, #tostring(separator or "")
  first, last = floor(tonumber(first) or 1), floor(tonumber(last) or #list)
  for i = first, last do
    local value = rawget(list, i)
    -- Others are an error of `concat` itself.
    size = size + between + (type(value) == "string" and #value or 32)
    if size > MOST_TEXT then fail(format("a string of more than %d bytes", MOST_TEXT)) end
  end
  return concat(list, separator, first, last)
end

-- `%s` calls `__tostring` of what it gets.
function environment.string.format(...)
  local size = 0
  for i = 1, select("#", ...) do
    local value = select(i, ...)
    size = size + (type(value) == "string" and #value or 32)
  end
  if size > MOST_TEXT then fail(format("texts of %d bytes; at most %d are formatted at once", size, MOST_TEXT)) end
  enter()
  return protected(pcall(format, ...))
end
string.format = environment.string.format

function environment.coroutine.resume(...)
  enter()
  return protected(pcall(resume_coroutine, ...))
end

function environment.coroutine.wrap(work)
  local thread = create_coroutine(work)
  return function(...)
    enter()
    return protected(resume_coroutine(thread, ...))
  end
end

-- The handler is called after the error, not within it, where no budget counts.
local function handled(handler, ok, ...)
  if ok then return true, ... end
  return false, handler(...)
end
function environment.xpcall(work, handler, ...) return handled(handler, pcall(work, ...)) end

function environment.getmetatable(value)
  local metatable = getmetatable(value)
  if type(value) == "string" then return nil end
  return metatable
end
function environment.print(...) brickway.log(...) end
environment._G = environment
for _, name in ipairs(host.allowed) do
  if name == "ffi" then
    environment.ffi = ffi
  elseif name == "require" then
    environment.require, environment.package = require, package
  else
    environment[name] = _G[name]
  end
end

local readers, writers, exports = {}, {}, {}

-- Declares handlers: `handlers.read("count", function(argument) return n end, "sum")`.
function environment.handlers.read(name, read, combine)
  if type(name) ~= "string" or type(read) ~= "function" then
    fail("expected handlers.read(NAME, FUNCTION [, COMBINE])")
  end
  combine = combine or "first"
  if combine ~= "first" and combine ~= "sum" and combine ~= "max" and combine ~= "join" then
    fail(format("'%s' is no way to combine the workers' values; expected first, sum, max or join", tostring(combine)))
  end
  readers[name], exports[name] = read, combine
end

function environment.handlers.write(name, write)
  if type(name) ~= "string" or type(write) ~= "function" then fail("expected handlers.write(NAME, FUNCTION)") end
  writers[name] = write
end

-- Why the compiler gives up on what a script can mend, by LuaJIT's numbers (`lj_traceerr.h`). That a loop lies within what was to be
-- compiled, say, is not a reason: the loop is compiled by itself.
local WHY = {
  [7] = "an instruction that is not compiled", [13] = "recursion", [15] = "a library function that is not compiled",
  [22] = "a conversion that is not compiled", [27] = "no memory for machine code", [28] = "too much machine code",
}

-- Where the compiler gave up, once a place.
local given_up, places = 0, {}
local ok, util = pcall(require, "jit.util")
if ok then
  local tries = {}
  jit.attach(function(what, _, func, pc, code, callee)
    -- Main loops end at a yield each time, which is not compiled.
    if what ~= "abort" or callee == coroutine.yield then return end
    local info = WHY[code] and util.funcinfo(func, pc)
    if not info or not info.loc or info.loc:find("prelude", 1, true) then return end
    tries[info.loc] = (tries[info.loc] or 0) + 1
    if tries[info.loc] == 6 and #places < 16 then
      given_up = given_up + 1
      places[given_up] = format("%s: %s", info.loc, WHY[code])
    end
  end, "trace")
end

local the_batch = make_batch(0)
local process
local create, resume, status, yield = coroutine.create, coroutine.resume, coroutine.status, coroutine.yield

-- The main loop: `for batch in brickway.batches() do`. The script waits there for a batch; it yields when the loop is asked to end.
local script, loop, is_waiting, has_loop
-- What `is_serving` is while the loop is the script's own.
local OF_SCRIPT = 2

local next_batch

local function wait_in_vain()
  is_waiting = true
  yield()
  is_waiting = false
  return next_batch()
end

-- Without a loop, which would keep that of the script from being compiled.
function next_batch()
  if ctx.is_serving ~= OF_SCRIPT then return wait_in_vain() end
  host_wait(ctx)
  if ctx.is_serving ~= OF_SCRIPT then return wait_in_vain() end
  return the_batch
end

function brickway.batches()
  if coroutine.running() ~= loop then fail("brickway.batches() is for the script itself, not for its functions") end
  return next_batch
end

local function begin(chunk)
  script, loop, is_waiting = chunk, create(chunk), false
  -- Queues and filters are made anew.
  queue_count, queue_numbers, filter_numbers = 0, setmetatable({}, { __mode = "k" }), setmetatable({}, { __mode = "k" })
  ctx.takes_merged = 0
  host.restart()
  local ok, why = resume(loop)
  if not ok then error(why, 0) end
end

local function loop_of_script()
  if ctx.is_serving ~= 0 then ctx.is_serving = OF_SCRIPT end
  local ok, why = resume(loop)
  if ok and is_waiting then return end
  -- The loop is over, and begins anew with what it has saved.
  ctx.is_serving = 0
  local saved = environment.save and environment.save()
  begin(script)
  if saved ~= nil and environment.restore then environment.restore(saved) end
  error(ok and "the main loop ended" or why, 0)
end

local function loop_of_process()
  local work = process
  while ctx.is_serving ~= 0 do
    host_wait(ctx)
    if ctx.is_serving == 0 then return end
    work(the_batch)
  end
end

return {
  environment = environment,
  -- Finds the script's functions once it has run.
  start = function(chunk)
    begin(chunk)
    process, has_loop = environment.process, is_waiting
    if not has_loop and type(process) ~= "function" then
      error("no function process(batch), and no loop over brickway.batches()", 0)
    end
    local names = {}
    for name, combine in pairs(exports) do names[#names + 1] = { name, combine, true, writers[name] ~= nil } end
    for name in pairs(writers) do
      if not readers[name] then names[#names + 1] = { name, "first", false, true } end
    end
    return names
  end,
  -- Works on batches, on a stack of its own, until it is asked to end. Returns the error that ended it.
  serve = function()
    local ok, why = pcall(has_loop and loop_of_script or loop_of_process)
    if not ok then return tostring(why) end
  end,
  timer = function(key) if environment.timer then environment.timer(key) end end,
  read = function(name, argument) return tostring(readers[name](argument)) end,
  write = function(name, value) writers[name](value) end,
  save = function() return environment.save and environment.save() end,
  restore = function(value) if environment.restore then environment.restore(value) end end,
  given_up = function()
    local new = places
    places, given_up = {}, 0
    return new
  end,
}
