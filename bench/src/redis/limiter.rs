//! Limiters whose state is in Redis, as the field's articles have them: one key, a limit in a window.
//!
//! Times are the caller's, but for the script, which asks the server for its own.

use redis::{Connection, RedisResult, Script, pipe};
use std::time::Duration;

/// How a call is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// `INCR`, and `EXPIRE` by the call that made the counter. One that dies between both leaves a key that stays.
    Increment,
    /// `GET`, compare, `SET`.
    GetThenSet,
    /// A token bucket in one script, which the server runs alone.
    Script,
    /// A sorted set of the calls in the window, in one transaction. Refused calls are in it, too.
    Log,
}

impl Way {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Increment, Self::GetThenSet, Self::Script, Self::Log];

    /// In tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Increment => "INCR and EXPIRE",
            Self::GetThenSet => "GET then SET",
            Self::Script => "script, token bucket",
            Self::Log => "sorted set",
        }
    }
}

/// A bucket of `ARGV[1]` tokens that is filled in `ARGV[2]` milliseconds: 1 when there was one. Absent is full, which is
/// why it may expire when it is full again.
const BUCKET: &str = "\
local limit, window = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000 + time[2] / 1000
local kept = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens = tonumber(kept[1]) or limit
local at = tonumber(kept[2]) or now
tokens = math.min(limit, tokens + math.max(0, now - at) * limit / window)
local admitted = 0
if tokens >= 1 then
  tokens = tokens - 1
  admitted = 1
end
redis.call('HSET', KEYS[1], 'tokens', tostring(tokens), 'at', tostring(math.max(now, at)))
redis.call('PEXPIRE', KEYS[1], window)
return admitted";

/// A limiter of one key.
pub struct Limiter {
    way: Way,
    key: String,
    limit: u32,
    window: Duration,
    script: Script,
}

impl Limiter {
    /// `limit` calls in `window`.
    pub fn new(way: Way, key: impl Into<String>, limit: u32, window: Duration) -> Self {
        Self { way, key: key.into(), limit, window, script: Script::new(BUCKET) }
    }

    /// Whether a call is admitted. `id` is unique; `now` is the time since some moment.
    ///
    /// # Errors
    /// The server does not answer, or with something else.
    pub fn decide(&self, redis: &mut Connection, id: u64, now: Duration) -> RedisResult<bool> {
        match self.way {
            Way::Increment => {
                let count: u32 = redis::cmd("INCR").arg(&self.key).query(redis)?;
                if count == 1 {
                    let _: u32 = redis::cmd("PEXPIRE").arg(&self.key).arg(self.window_ms()).query(redis)?;
                }
                Ok(count <= self.limit)
            }
            Way::GetThenSet => {
                let count: Option<u32> = redis::cmd("GET").arg(&self.key).query(redis)?;
                if count.is_some_and(|count| count >= self.limit) {
                    return Ok(false);
                }
                let mut set = redis::cmd("SET");
                set.arg(&self.key).arg(count.unwrap_or(0) + 1);
                let () = match count {
                    Some(_) => set.arg("KEEPTTL").query(redis)?,
                    None => set.arg("PX").arg(self.window_ms()).query(redis)?,
                };
                Ok(true)
            }
            Way::Script => {
                let mut call = self.script.key(&self.key);
                let admitted: u32 = call.arg(self.limit).arg(self.window_ms()).invoke(redis)?;
                Ok(admitted == 1)
            }
            Way::Log => {
                let now = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
                let begin = now.saturating_sub(self.window_ms() * 1_000);
                let (before,): (u32,) = pipe()
                    .atomic()
                    .cmd("ZREMRANGEBYSCORE")
                    .arg(&self.key)
                    .arg("-inf")
                    .arg(format!("({begin}"))
                    .ignore()
                    .cmd("ZCARD")
                    .arg(&self.key)
                    .cmd("ZADD")
                    .arg(&self.key)
                    .arg(now)
                    .arg(id)
                    .ignore()
                    .cmd("PEXPIRE")
                    .arg(&self.key)
                    .arg(self.window_ms())
                    .ignore()
                    .query(redis)?;
                Ok(before < self.limit)
            }
        }
    }

    fn window_ms(&self) -> u64 {
        u64::try_from(self.window.as_millis()).unwrap_or(u64::MAX)
    }
}
