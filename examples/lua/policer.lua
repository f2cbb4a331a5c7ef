-- A token bucket for each source address: at most so many packets a second, and so many at once.
--
--   FromDevice(eth1) -> policer :: Lua(FILE examples/lua/policer.lua, ARGS "1000 100") -> ToDevice(eth2);
--
-- IPv4 only; a new source is dropped while 100,000 have a bucket. The handler policer.sources says how many sources have a bucket, policer.rate changes the rate.

local rate, burst = brickway.args:match("^(%d+) (%d+)$")
rate, burst = tonumber(rate), tonumber(burst)
if not rate then error("expected ARGS \"PACKETS_A_SECOND BURST\"", 0) end

-- Two generations of buckets: a source that has been silent for a minute is forgotten with the older one.
local young, old, count = {}, {}, 0
local MOST_SOURCES = 100000

local function bucket_of(source, now)
  local bucket = young[source]
  if bucket then return bucket end
  bucket = old[source]
  if not bucket then
    if count >= MOST_SOURCES then return nil end
    bucket = { tokens = burst, since = now }
  end
  young[source], count = bucket, count + 1
  return bucket
end

function process(batch)
  local now = brickway.now()
  for _, p in batch:each() do
    local ip = p.ip
    if ip then
      local bucket = bucket_of(ip.src, now)
      if not bucket then
        p:drop("too many sources")
      else
        local tokens = math.min(burst, bucket.tokens + (now - bucket.since) * rate)
        bucket.since = now
        if tokens >= 1 then
          bucket.tokens = tokens - 1
        else
          bucket.tokens = tokens
          p:drop("over the rate")
        end
      end
    end
  end
end

function timer()
  old, young, count = young, {}, 0
  brickway.set_timer(60)
end
brickway.set_timer(60)

function save() return { young = young, old = old, count = count, rate = rate } end
function restore(saved) young, old, count, rate = saved.young, saved.old, saved.count, saved.rate end

handlers.read("sources", function() return count end, "sum")
handlers.read("rate", function() return rate end)
handlers.write("rate", function(value)
  rate = tonumber(value) or error("expected packets a second", 0)
end)
