//! Frames on their way home: a stack that any thread pushes to and only its owner empties.
//!
//! Packets that are freed by another worker than the one whose pool they came from are pushed here, those of a
//! batch in one chain. The owner takes the whole stack with one swap when its own list runs dry.
//!
//! **Why this is right.** Push is a compare-and-swap loop on `head`; the node's `next` is written before
//! the node is published (release), and the owner reads it after taking the head (acquire). There is no
//! pop of a single node, hence no ABA: the owner's `swap(null)` takes a whole chain, and a pusher that read
//! the old head fails its compare-and-swap, or succeeds because the same node is head again, in which case
//! linking to it is what it should do. A node is owned by the thread that pushes it until the push succeeds, and by
//! the owner after the swap, so nobody reads a `next` that another thread may write. Runs under loom
//! (`RUSTFLAGS="--cfg loom" cargo test -p brickway-packet loom`).

use std::ptr::{self, NonNull};

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicPtr, Ordering};
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicPtr, Ordering};

/// What a node must offer: a place for the link, which nobody else uses while the node is in the stack.
///
/// # Safety
/// `next_slot` must point to memory that is valid for reads and writes while the node is in a stack, and
/// that only the stack touches then.
#[allow(unsafe_code, reason = "the contract of an intrusive list")]
pub(crate) unsafe trait Node {
    /// Where the link lies.
    ///
    /// # Safety
    /// The node is there, and the caller owns it.
    unsafe fn next_slot(node: NonNull<Self>) -> *mut *mut Self;
}

/// Nodes linked to each other, on their way home together: one exchange for all of them. Who has the chain owns its nodes.
#[derive(Debug)]
pub(crate) struct Chain<T> {
    first: NonNull<T>,
    last: NonNull<T>,
    count: usize,
}

impl<T: Node> Chain<T> {
    /// A chain of one node.
    ///
    /// # Safety
    /// The caller owns the node, and gives it to the chain.
    #[allow(unsafe_code, reason = "the caller gives a node away")]
    pub(crate) unsafe fn new(node: NonNull<T>) -> Self {
        Self { first: node, last: node, count: 1 }
    }

    /// Puts `node` in front.
    ///
    /// # Safety
    /// The caller owns the node, and gives it to the chain.
    #[inline]
    #[allow(unsafe_code, reason = "the caller gives a node away")]
    pub(crate) unsafe fn add(&mut self, node: NonNull<T>) {
        // SAFETY: the caller owns the node (contract of `Node`).
        unsafe {
            T::next_slot(node).write(self.first.as_ptr());
        }
        self.first = node;
        self.count += 1;
    }

    /// Gives each node to `take`, which then owns it.
    pub(crate) fn each(self, mut take: impl FnMut(NonNull<T>)) {
        let mut node = self.first;
        loop {
            let is_last = node == self.last;
            #[allow(unsafe_code, reason = "the link lies in the node")]
            // SAFETY: the chain owns its nodes; the last one's link may hold anything and is not followed.
            let link = unsafe { T::next_slot(node).read() };
            let next = NonNull::new(link).filter(|_| !is_last);
            take(node);
            match next {
                Some(next) => node = next,
                None => return,
            }
        }
    }

    /// The first node.
    pub(crate) fn first(&self) -> NonNull<T> {
        self.first
    }

    /// Number of nodes.
    pub(crate) fn len(&self) -> usize {
        self.count
    }
}

/// The stack of returned nodes.
#[derive(Debug)]
pub(crate) struct ReturnStack<T> {
    head: AtomicPtr<T>,
}

impl<T: Node> ReturnStack<T> {
    pub(crate) fn new() -> Self {
        Self { head: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Gives all nodes of a chain back. Any thread.
    pub(crate) fn push_chain(&self, chain: Chain<T>) {
        #[allow(unsafe_code, reason = "the link lies in the node")]
        // SAFETY: the chain owns its nodes.
        let next = unsafe { T::next_slot(chain.last) };
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            #[allow(unsafe_code, reason = "the link lies in the node")]
            // SAFETY: the chain owns its nodes until the exchange below succeeds (contract of `Node`).
            unsafe {
                next.write(head);
            }
            let first = chain.first.as_ptr();
            match self.head.compare_exchange_weak(head, first, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(current) => head = current,
            }
        }
    }

    /// Takes everything that was returned so far and gives each node to `take`; the owner only.
    /// Returns how many there were.
    pub(crate) fn drain(&self, mut take: impl FnMut(NonNull<T>)) -> usize {
        if self.head.load(Ordering::Relaxed).is_null() {
            return 0;
        }
        let mut node = self.head.swap(ptr::null_mut(), Ordering::Acquire);
        let mut count = 0;
        while let Some(current) = NonNull::new(node) {
            #[allow(unsafe_code, reason = "the link lies in the node")]
            // SAFETY: the swap made this thread the only owner of the chain, and acquire ordering makes the
            // links written before each push visible.
            unsafe {
                node = T::next_slot(current).read();
            }
            take(current);
            count += 1;
        }
        count
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    struct Item {
        next: *mut Item,
        value: u32,
    }

    #[allow(unsafe_code, reason = "test node")]
    // SAFETY: the field is part of the node and used by nothing else.
    unsafe impl Node for Item {
        unsafe fn next_slot(node: NonNull<Self>) -> *mut *mut Self {
            // SAFETY: the node is alive for the whole test.
            unsafe { &raw mut (*node.as_ptr()).next }
        }
    }

    #[test]
    #[allow(unsafe_code, reason = "test nodes are boxed by hand")]
    fn loom_two_threads_return_while_the_owner_drains() {
        loom::model(|| {
            let stack = Arc::new(ReturnStack::<Item>::new());
            let threads: Vec<_> = (0..2)
                .map(|value| {
                    let stack = stack.clone();
                    thread::spawn(move || {
                        let item =
                            |value| NonNull::from(Box::leak(Box::new(Item { next: ptr::null_mut(), value })));
                        // SAFETY: the nodes were made here, and nobody else has them.
                        let chain = unsafe {
                            let mut chain = Chain::new(item(value));
                            chain.add(item(value + 2));
                            chain
                        };
                        assert_eq!(chain.len(), 2);
                        stack.push_chain(chain);
                    })
                })
                .collect();
            let mut seen = Vec::new();
            // SAFETY: `drain` gives each leaked box back once.
            let mut take = |item: NonNull<Item>| seen.push(unsafe { Box::from_raw(item.as_ptr()) }.value);
            stack.drain(&mut take);
            for handle in threads {
                handle.join().unwrap();
            }
            stack.drain(&mut take);
            seen.sort_unstable();
            assert_eq!(seen, [0, 1, 2, 3]);
        });
    }
}
