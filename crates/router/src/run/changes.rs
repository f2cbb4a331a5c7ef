//! The history of routes, for `brickway show changes`.

use std::collections::BTreeSet;

use control::api::{ChangeFilter, ChangeRow, RouteWayRow, Rows, Unanswered};
use control::change::Hops;
use control::mirror::{FoundBy, Mirror, RouteChange, Subject, Way};
use fib::MAIN;

use super::answers::protocol_name;
use super::live::Live;
use crate::moment::rfc3339;

/// Changes that are looked at with the mirror's lock held.
const PAGE: usize = 4_096;

impl Live {
    /// Sends how far the history reaches, and the changes that the filter selects, the oldest first.
    pub(super) fn changes(&self, filter: &ChangeFilter, rows: &mut Rows<'_>) -> Result<(), Unanswered> {
        let objects = self.objects_of(filter)?;
        let reach = self.state()?.mirror.reach();
        let since = rfc3339(reach.since_us);
        rows.send(ChangeRow::History { since, kept: reach.kept as u64, overwritten: reach.overwritten })?;
        let is_wanted = |change: &RouteChange| {
            filter.selects_time(change.time_us)
                && match change.subject {
                    Subject::Route(table, prefix) => filter.selects_route(table, prefix),
                    Subject::Object(id) => !filter.has_destination() || objects.contains(&id),
                }
        };
        let mut next = 0;
        loop {
            let state = self.state()?;
            let (mut page, mut seen) = (Vec::new(), 0);
            for (number, change) in state.mirror.changes_from(next).take(PAGE) {
                (next, seen) = (number + 1, seen + 1);
                page.extend(is_wanted(change).then(|| row(change)));
            }
            drop(state);
            page.into_iter().try_for_each(|row| rows.send(row))?;
            if seen < PAGE {
                return Ok(());
            }
        }
    }

    /// The objects that the routes which a filter selects by destination name, or named.
    fn objects_of(&self, filter: &ChangeFilter) -> Result<BTreeSet<u32>, Unanswered> {
        let mut objects = BTreeSet::new();
        if !filter.has_destination() {
            return Ok(objects);
        }
        let state = self.state()?;
        for (_, change) in state.mirror.changes_from(0) {
            if let Subject::Route(table, prefix) = change.subject
                && filter.selects_route(table, prefix)
            {
                let ways = [&change.old, &change.new].into_iter().flatten();
                objects.extend(ways.filter_map(|way| way.object).map(u32::from));
            }
        }
        objects.extend(object_now(&state.mirror, filter));
        Ok(objects)
    }
}

/// The object that the present route to what a filter asks for names; it may be older than the history.
fn object_now(mirror: &Mirror, filter: &ChangeFilter) -> Option<u32> {
    let address = filter.containing.or(filter.within.map(|within| within.addr()))?;
    match mirror.route_for(filter.table.unwrap_or(MAIN), address)?.by {
        FoundBy::Route(route) => match route.hops {
            Hops::Object(id) => Some(id),
            Hops::None | Hops::Paths(_) => None,
        },
        FoundBy::Neighbour(_) | FoundBy::Fixed => None,
    }
}

fn row(change: &RouteChange) -> ChangeRow {
    let way = |way: &Option<Way>| {
        way.as_ref().map(|way| RouteWayRow {
            hops: way.hops.to_string(),
            protocol: protocol_name(way.protocol),
            source: way.source.to_string(),
            metric: way.metric,
        })
    };
    let of_object = |row: Option<RouteWayRow>| row.map(|row| RouteWayRow { protocol: String::new(), ..row });
    let (time, old, new) = (rfc3339(change.time_us), way(&change.old), way(&change.new));
    match change.subject {
        Subject::Route(table, prefix) => ChangeRow::Route { time, table, prefix, old, new },
        Subject::Object(object) => {
            ChangeRow::Object { time, object, old: of_object(old), new: of_object(new) }
        }
    }
}
