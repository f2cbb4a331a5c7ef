//! The control socket: what a running router is asked, and how it answers. `brickway show` is its client;
//! `socat` and a script will do too.
//!
//! ```text
//! $ echo '{"version":1,"show":"routes","filter":{"protocol":"bgp"}}' | socat - UNIX:/run/brickway/NUMBER.sock
//! {"version":1,"ok":"routes"}
//! {"row":{"prefix":"192.0.2.0/24","table":254,"kind":"unicast","protocol":"bgp", ... }}
//! {"row":{"prefix":"198.51.100.0/24", ... }}
//! {"end":2}
//! ```
//!
//! NUMBER is that of the router's network namespace (`stat -Lc %i /proc/self/ns/net`): of several routers on a machine the one
//! here answers. `NUMBER.show.sock` beside it, for the read group, takes nothing that changes what the router does, and nothing that
//! reads packets.
//!
//! A request is a line ([`Request`]); several may follow one another on a connection. The answer is a head, a
//! line for each row, and an end with their number, so that a list of a million routes takes no memory on
//! either side, and an answer that was cut off is known as such. Instead of the head, or in the middle of the
//! rows, there may be `{"version":1,"error":"..."}`, which ends the answer. The error of a reload that needs a restart lists the
//! options in `"needs_restart"`.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `request` | what can be asked, to and from lines |
//! | `rows` | what is answered |
//! | [`schema`] | what requests and rows look like, for OpenAPI and documentation |
//! | `server` | [`Server`]: threads that listen, and the [`Backend`] that they ask |
//! | `asker` | who asks, for the log |
//! | `place` | where the sockets are: each network namespace has its own |
//! | `client` | [`Client`]: asks, and reads the rows as they come |

mod asker;
mod client;
mod place;
mod request;
mod rows;
pub mod schema;
mod server;
#[cfg(test)]
mod tests;

pub use client::{Answer, Client, ClientError};
pub use place::{default_socket, namespace, reading_path, routers_elsewhere};
pub use request::{
    Action, CaptureQuery, ChangeFilter, ConfigFilter, CostFilter, DropFilter, FilterInstruction,
    HandlerFilter, LOCAL_TABLE, Level, LogQuery, NeighbourFilter, NextHopFilter, NoFilter, PacketFilter,
    PortFilter, Request, RouteFilter, RouteQuery, Show, TableQuery, TraceQuery, VERSION,
};
pub use rows::{
    CaptureCounts, CaptureRow, ChangeRow, ClusterLinkRow, ClusterNodeRow, ClusterRow, CostRow, CountRow,
    CounterRow, DriftChecks, DriftRow, DropRow, EdgeRow, ElementRow, EventRow, HandlerRow, HistoryRow,
    LogRow, LookupRow, MemberRow, MovedRow, NeighbourRow, NextHopRow, PathRow, PortRow, PuntRow, QueueRow,
    RateRow, RouteRow, RouteTableRow, RouteWayRow, Row, SeenPacket, SystemRow, TextRow, TrafficRow, WayRow,
    WorkerRow,
};
pub use server::{Backend, Rows, Server, ServerError, ServerOptions, Sockets, Unanswered};
pub use utoipa;
