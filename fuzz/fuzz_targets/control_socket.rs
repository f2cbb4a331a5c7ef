//! Any line as a request of the control socket: a request, or what is wrong with it, never a panic. A request is written as a line
//! that is read as the same request.
#![no_main]

use control::api::Request;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|line: &[u8]| match Request::parse(line) {
    Ok(request) => assert_eq!(Request::parse(request.to_line().as_bytes()), Ok(request)),
    Err(problem) => assert!(!problem.is_empty()),
});
