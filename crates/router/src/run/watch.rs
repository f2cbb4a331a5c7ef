//! A router that runs: rates on the terminal, balancing, what follows Linux, until the end.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};

use control::supervisor::{Fault, Problem, Pulse};
use elements::devices::balance::Balancer;
use graph::router::Control;

use super::RunArguments;
use super::drift::Checker;
use super::live::Live;
use super::summary::Totals;
use crate::beside_linux;
use crate::beside_linux::marks::MarkWatcher;
use crate::log;
use crate::settings::WorkerSettings;
use crate::table::{scaled, thousands};

/// Time between two looks at the load of the workers.
const BALANCE_PERIOD: Duration = Duration::from_secs(1);

/// Waits for the end, showing rates. A thread that failed, if one did, is why it came.
pub(super) fn watch(arguments: &RunArguments, live: &Arc<Live>, control: &Control) -> Option<Fault> {
    let pulse = live.supervisor.watch("main");
    pulse.beat();
    let fault = watch_until_end(arguments, live, control, &pulse);
    // What is to come may take its time.
    pulse.retire();
    match fault {
        Some(_) => live.leave(),
        None => live.supervisor.end(),
    }
    fault
}

fn watch_until_end(
    arguments: &RunArguments,
    live: &Arc<Live>,
    control: &Control,
    pulse: &Pulse,
) -> Option<Fault> {
    let on_terminal = std::io::stderr().is_terminal();
    let usual_period = if on_terminal && !arguments.quiet { 1.0 } else { 0.0 };
    let begin = Instant::now();
    let end = arguments.duration.map(|seconds| begin + Duration::from_secs_f64(seconds.clamp(0.0, 1e9)));
    let mut last = (Instant::now(), Totals::default());
    let mut balancer = None;
    let mut balanced = Instant::now();
    let watchdog = live.notify.watchdog_period();
    let mut told = Instant::now();
    let mut linux = live.service.is_some().then(|| beside_linux::Watcher::new(&live.settings()));
    let mut marks = MarkWatcher::new();
    let mut drift = Checker::new();
    let mut has_line = false;
    loop {
        let now = Instant::now();
        if live.signals.is_interrupted() || end.is_some_and(|end| now >= end) {
            break;
        }
        let step = end.map_or(Duration::from_millis(50), |end| (end - now).min(Duration::from_millis(50)));
        if control.wait(step) && !live.with_router(|router| router.goes_on()).unwrap_or(false) {
            break;
        }
        pulse.beat();
        // Nobody has taken the router: that is done after this.
        if let Some(thread) = live.with_router(|router| router.failed()).ok().flatten() {
            return Some(Fault { thread, problem: Problem::Ended });
        }
        if let Some(fault) = live.supervisor.fault() {
            return Some(fault);
        }
        live.follow();
        live.measure();
        live.look_at_problems();
        if live.signals.take_hang_up() {
            let live = live.clone();
            tracing::info!(event = "reload", "reload: asked for by SIGHUP");
            // On a thread of its own, so that the watchdog does not wait until rules are compiled.
            let reload = std::thread::Builder::new().name("reload".to_owned());
            if let Err(error) = reload.spawn(move || live.reload()) {
                tracing::error!(event = "reload", reason = %error, "reload failed: {error}");
            }
        }
        if watchdog.is_some_and(|period| told.elapsed() >= period) {
            told = Instant::now();
            // Each worker has to answer first.
            if live.with_router(|router| router.on_each(|_| ())).is_ok() {
                live.notify.watchdog();
            }
        }
        let settings = live.settings();
        log::look(settings.log.level);
        if let Some(linux) = &mut linux {
            linux.look(&settings).iter().for_each(|warning| tracing::warn!("{warning}"));
        }
        if let Some(service) = &live.service {
            marks.look(service, &settings);
        }
        drift.look(live, settings.tables.check_seconds);
        let WorkerSettings { count, min, balance, .. } = settings.workers;
        if balance && count > 1 && balanced.elapsed() >= BALANCE_PERIOD {
            balanced = Instant::now();
            let balancer = balancer.get_or_insert_with(|| Balancer::new(count, min.unwrap_or(count)));
            match live.with_router(|router| balancer.step(router)).and_then(|step| step) {
                Ok(lines) if !arguments.quiet => {
                    lines.iter().for_each(|line| tracing::info!(event = "balance", "balance: {line}"))
                }
                Ok(_) => {}
                Err(error) => tracing::warn!(event = "balance", "balance: {error}"),
            }
        }
        let period = settings.log.stats_seconds.map_or(usual_period, |period| period.0);
        if period > 0.0 && last.0.elapsed().as_secs_f64() >= period {
            let Ok((stats, config)) = live.with_router(|router| (router.stats(), router.config().clone()))
            else {
                continue;
            };
            let totals = Totals::of(&config, &stats, &live.paths());
            let seconds = last.0.elapsed().as_secs_f64();
            let line = format!(
                "{:6.1} s  in {}pps  out {}pps  dropped {}  busy {}",
                begin.elapsed().as_secs_f64(),
                scaled((totals.received - last.1.received) as f64 / seconds),
                scaled(totals.sent.saturating_sub(last.1.sent) as f64 / seconds),
                thousands(totals.dropped),
                stats.iter().map(|copy| format!("{:.0}%", copy.busy * 100.0)).collect::<Vec<_>>().join(" ")
            );
            live.notify.status(line.trim());
            if on_terminal {
                graph::messages::print_as_it_is(&format!("\r\x1b[K{line}"));
                has_line = true;
            } else {
                graph::note!("{line}");
            }
            last = (Instant::now(), totals);
        }
    }
    if has_line {
        graph::messages::print("");
    }
    None
}
