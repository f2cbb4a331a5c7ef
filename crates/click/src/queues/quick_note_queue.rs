//! =c
//! QuickNoteQueue([CAPACITY])
//!
//! =s queues
//! stores packets; says at once when it is empty
//!
//! =d
//! The same as C<Queue>. In Click a Queue lets tasks downstream come back in vain a few times before it tells them that it is
//! empty, and this one does not; here every queue tells at once.
//!
//! =a Queue, NotifierQueue

use graph::Class;

use super::queue;

pub(crate) static CLASS: Class =
    Class { name: "QuickNoteQueue", manual: graph::manual!("quick_note_queue.rs"), ..queue::CLASS };

#[cfg(test)]
mod tests {
    use graph::testing::Bench;

    #[test]
    fn a_source_waits_while_it_is_full() {
        for (queue, drops) in
            [("Queue", "0"), ("QuickNoteQueue", "0"), ("FullNoteQueue", "0"), ("NotifierQueue", "36")]
        {
            let config = format!("InfiniteSource(LIMIT 100) -> q :: {queue}(64) -> out :: TestOutput");
            let mut bench = Bench::new(&crate::registry(), &config);
            bench.run(100);
            assert_eq!(
                (bench.read("q.length"), bench.read("q.drops")),
                ("64".into(), drops.into()),
                "{queue}"
            );
        }
    }

    #[test]
    fn a_task_downstream_sleeps_once_it_is_empty() {
        let config = "in :: TestInput -> e :: QuickNoteQueue -> Unqueue -> out :: TestOutput";
        let mut bench = Bench::new(&crate::registry(), config);
        bench.push("in", &[b"1", b"2"]);
        bench.run(2);
        assert_eq!(bench.taken("out"), [b"1", b"2"]);
        assert!(!bench.graph().context().has_awake_tasks());
    }
}
