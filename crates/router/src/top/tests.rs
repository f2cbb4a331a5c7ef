//! Rates, order, filter, keys and drawing, without a terminal.

use std::path::Path;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;

use super::draw::{Look, draw};
use super::rates::{Cell, Table, Tables, Unit};
use super::state::{State, Then, View, sort};
use super::testing::sample;
use super::{plain, seconds};

const LOOK: Look = Look { has_colours: false, every: Duration::from_secs(1) };

/// A row of a table by what stands in one of its cells.
fn row<'a>(table: &'a Table, name: &str) -> &'a [Cell] {
    table.rows.iter().find(|row| row.contains(&Cell::Text(name.to_owned()))).unwrap()
}

fn numbers(row: &[Cell]) -> Vec<f64> {
    row.iter().filter_map(Cell::number).collect()
}

/// A state that was shown two samples, two seconds apart.
fn state() -> State {
    let mut state = State::new();
    state.take(Ok(sample(0, 100_000)));
    state.take(Ok(sample(2, 300_000)));
    state
}

fn press(state: &mut State, keys: &str) -> Then {
    let mut then = Then::Draw;
    for key in keys.chars() {
        then = state.press(KeyEvent::new(KeyCode::Char(key), KeyModifiers::NONE));
    }
    then
}

/// The first texts of a view's rows.
fn names(state: &State, view: View) -> Vec<String> {
    let text = |row: &&[Cell]| row.iter().find(|cell| cell.number().is_none()).map(Cell::plain);
    state.rows(view).iter().filter_map(text).collect()
}

#[test]
fn a_rate_is_what_a_counter_grew_by_in_the_seconds_between() {
    let (old, new) = (sample(0, 100_000), sample(2, 300_000));
    let tables = Tables::new(Some(&old), &new, Unit::Second);
    assert_eq!(numbers(row(&tables.ports, "eth1")), [100_000.0, 80e6, 50_000.0, 40e6, 150.0, 0.0, 1_000.0]);
    assert_eq!(numbers(row(&tables.workers, "1")), [0.5, 0.25, 50_000.0, 812.5]);
    assert_eq!(numbers(row(&tables.queues, "eth10:0")), [100_000.0, 80e6, 10.0]);
    assert_eq!(numbers(row(&tables.drops, "no route")), [10_000.0, 30_000.0]);
    assert_eq!(numbers(row(&tables.punts, "TTL expired")), [0.0, 9.0]);
    let [check, lookup] = ["check", "rt"].map(|name| numbers(row(&tables.elements, name)));
    assert_eq!(check, [5e6, 5e6 / 39.75e6, 100_000.0, 50.0, 200.0]);
    assert_eq!(lookup[3], 250.0);
    let shares: f64 = tables.elements.rows.iter().filter_map(|row| row[1].number()).sum();
    assert!((shares - 1.0).abs() < 1e-9, "{shares}");
    let totals = Tables::new(Some(&old), &new, Unit::Total);
    assert_eq!(numbers(row(&totals.ports, "eth1"))[..2], [200_000.0, 160e6]);
    assert_eq!(numbers(row(&totals.drops, "no route")), [20_000.0, 30_000.0]);
}

#[test]
fn rates_are_never_negative_nor_those_of_a_counter_that_began_again() {
    let unknown = |table: &Table, name: &str| row(table, name)[1] == Cell::Number(None);
    let (old, mut new) = (sample(0, 900_000), sample(1, 10));
    // The same process with lower counters: each began again.
    let tables = Tables::new(Some(&old), &new, Unit::Second);
    for table in [&tables.ports, &tables.queues, &tables.drops, &tables.elements] {
        let all = table.rows.iter().flatten();
        assert!(all.filter_map(Cell::number).all(|number| (-1.0..=10.0).contains(&number)), "{table:?}");
    }
    assert!(unknown(&tables.ports, "eth1"));
    // Another process has its own counts, even where they are higher.
    new = sample(1, 2_000_000);
    new.system.pid += 1;
    assert!(unknown(&Tables::new(Some(&old), &new, Unit::Second).ports, "eth1"));
    // No time went by, or there was nothing before.
    assert!(unknown(&Tables::new(Some(&old), &sample(0, 900_001), Unit::Second).ports, "eth1"));
    assert!(unknown(&Tables::new(None, &old, Unit::Second).ports, "eth1"));
    // A port that was not there has no rate, a reason of drops begins at zero.
    let mut before = sample(0, 0);
    before.ports.rows.remove(0);
    before.drops.rows.clear();
    let tables = Tables::new(Some(&before), &sample(1, 1_000), Unit::Second);
    assert!(unknown(&tables.ports, "eth1") && !unknown(&tables.ports, "eth2"));
    assert_eq!(numbers(row(&tables.drops, "no route")), [100.0, 100.0]);
}

#[test]
fn an_estimate_that_gets_lower_is_no_work() {
    let (old, mut new) = (sample(0, 1_000), sample(1, 1_000));
    new.elements.rows[0].cycles -= 5.0;
    let tables = Tables::new(Some(&old), &new, Unit::Second);
    assert_eq!(numbers(row(&tables.elements, "in")), [0.0, -1.0, 0.0, -1.0, 0.0]);
}

#[test]
fn a_router_that_refuses_a_list_has_its_reason_in_the_lists_place() {
    let mut new = sample(1, 10);
    new.ports.rows.clear();
    new.ports.refusal = "this router has tables of its own".into();
    assert_eq!(Tables::new(None, &new, Unit::Second).ports.nothing, "this router has tables of its own");
}

#[test]
fn rows_are_sorted_by_the_column_that_was_chosen_and_names_as_people_count() {
    let mut state = state();
    assert_eq!(names(&state, View::Elements), ["rt", "in", "check", "idle"]);
    assert_eq!(names(&state, View::Drops), ["rt", "check"]);
    assert_eq!(names(&state, View::Workers), ["eth1:0", "eth2:0", "eth10:0"]);
    press(&mut state, "5r");
    assert_eq!(names(&state, View::Elements), ["idle", "check", "in", "rt"]);
    // Cycles, share, packets, cycles a packet, dropped, then the name.
    press(&mut state, "rsssss");
    assert_eq!(names(&state, View::Elements), ["rt", "in", "idle", "check"]);
    press(&mut state, "ss");
    assert_eq!(state.orders[View::Elements.index()].column, 0);
}

#[test]
fn sorting_agrees_with_every_pair_of_its_rows() {
    proptest::proptest!(|(values in proptest::collection::vec((0u8..5, "[ab]{0,2}[0-9]{0,2}"), 0..20),
            column in 0usize..2, is_descending: bool)| {
        let rows: Vec<Vec<Cell>> = values.iter()
            .map(|(number, text)| vec![Cell::Number(Some(f64::from(*number))), Cell::Text(text.clone())]).collect();
        let mut sorted: Vec<&[Cell]> = rows.iter().map(Vec::as_slice).collect();
        sort(&mut sorted, column, is_descending);
        proptest::prop_assert_eq!(sorted.len(), rows.len());
        let rank = |text: &str| {
            let end = text.find(|letter: char| letter.is_ascii_digit()).unwrap_or(text.len());
            (text[..end].to_owned(), text[end..].parse::<u64>().map_or(0, |number| number + 1))
        };
        for pair in sorted.windows(2) {
            let [one, other] = [pair[0], pair[1]];
            let way = match column {
                0 => one[0].number().unwrap().total_cmp(&other[0].number().unwrap()),
                _ => rank(&one[1].plain().replace('-', "")).cmp(&rank(&other[1].plain().replace('-', ""))),
            };
            proptest::prop_assert!(if is_descending { way.is_ge() } else { way.is_le() }, "{:?}", pair);
        }
    });
}

#[test]
fn the_filter_keeps_rows_with_the_text_and_its_keys_are_letters() {
    let mut state = state();
    press(&mut state, "/LOOKUP");
    assert!(state.is_typing);
    assert_eq!(names(&state, View::Elements), ["rt"]);
    assert_eq!(names(&state, View::Drops), [""; 0]);
    // The ports are filtered only where they were chosen.
    assert_eq!(names(&state, View::Ports), ["eth1", "eth2"]);
    state.view = View::Ports;
    assert_eq!(names(&state, View::Ports), [""; 0]);
    // q is a letter now.
    assert_eq!(press(&mut state, "q"), Then::Draw);
    state.press(KeyCode::Backspace.into());
    state.press(KeyCode::Enter.into());
    assert_eq!((state.filter.as_str(), state.is_typing), ("LOOKUP", false));
    press(&mut state, "/");
    state.press(KeyCode::Esc.into());
    assert_eq!((state.filter.as_str(), names(&state, View::Elements).len()), ("", 4));
}

#[test]
fn keys_choose_views_and_quit() {
    let mut state = State::new();
    for (key, view) in "12345".chars().zip(View::ALL) {
        press(&mut state, &key.to_string());
        assert_eq!(state.view, view);
    }
    state.press(KeyCode::Tab.into());
    assert_eq!(state.view, View::Ports);
    state.press(KeyCode::BackTab.into());
    assert_eq!(state.view, View::Elements);
    press(&mut state, "?");
    assert!(state.shows_keys);
    // Any key closes the keys, and does nothing else.
    assert_eq!(press(&mut state, "q"), Then::Draw);
    assert!(!state.shows_keys);
    assert_eq!(press(&mut state, "q"), Then::Quit);
    assert_eq!(state.press(KeyCode::Esc.into()), Then::Quit);
    press(&mut state, "/");
    assert_eq!(state.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)), Then::Quit);
}

#[test]
fn a_pause_holds_what_is_shown_and_its_end_shows_the_last_second() {
    let mut state = state();
    let rate = |state: &State| state.rows(View::Ports)[0][1].clone();
    press(&mut state, "p");
    state.take(Ok(sample(3, 300_500)));
    state.take(Ok(sample(4, 300_900)));
    assert_eq!(rate(&state), Cell::Number(Some(100_000.0)));
    press(&mut state, " ");
    assert_eq!(rate(&state), Cell::Number(Some(400.0)));
}

#[test]
fn totals_begin_at_the_key_and_again_with_another_router() {
    let mut state = state();
    let received = |state: &State| state.rows(View::Ports)[0][1].clone();
    press(&mut state, "z");
    assert_eq!(received(&state), Cell::Number(Some(0.0)));
    state.take(Ok(sample(5, 300_700)));
    assert_eq!(received(&state), Cell::Number(Some(700.0)));
    assert_eq!(state.shown.as_ref().unwrap().since, Some(Duration::from_secs(3)));
    let another = |second, packets| {
        let mut sample = sample(second, packets);
        sample.system.pid = 78;
        Ok(sample)
    };
    state.take(another(6, 5_000));
    assert_eq!(received(&state), Cell::Number(Some(0.0)));
    state.take(another(7, 5_030));
    assert_eq!(received(&state), Cell::Number(Some(30.0)));
    press(&mut state, "z");
    assert_eq!(received(&state), Cell::Number(Some(30.0)));
}

#[test]
fn a_list_moves_no_further_than_its_last_row() {
    let mut state = state();
    press(&mut state, "5");
    state.press(KeyCode::PageDown.into());
    assert_eq!(state.orders[View::Elements.index()].first, 3);
    state.press(KeyCode::Up.into());
    assert_eq!(state.orders[View::Elements.index()].first, 2);
    press(&mut state, "/rt");
    assert_eq!(state.orders[View::Elements.index()].first, 0);
}

/// The screen as text, its lines without blanks at their ends.
fn screen(state: &State, width: u16, height: u16, look: Look) -> (String, TestBackend) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, state, look)).unwrap();
    let backend = terminal.backend().clone();
    let cells: Vec<&str> = backend.buffer().content.iter().map(|cell| cell.symbol()).collect();
    let lines = cells.chunks(width.into()).map(|line| line.concat().trim_end().to_owned() + "\n");
    (lines.collect(), backend)
}

/// Compares a screen with the text of a file.
fn is_golden(name: &str, text: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/top/golden").join(name);
    if std::env::var_os("BRICKWAY_UPDATE").is_some() {
        std::fs::write(&file, text).unwrap();
    }
    let known = std::fs::read_to_string(&file).unwrap();
    assert!(known == text, "{name} is another; BRICKWAY_UPDATE=1 writes it again:\n{text}");
}

#[test]
fn a_small_screen_has_one_view_below_the_ports() {
    let mut text = String::new();
    for keys in ["2", "3", "4", "5", "1", "?"] {
        let mut state = state();
        press(&mut state, keys);
        text += &format!("{keys}\n{}", screen(&state, 80, 24, LOOK).0);
    }
    is_golden("80x24.txt", &text);
}

#[test]
fn a_large_screen_has_all_views_and_the_last_minute() {
    let mut state = state();
    for second in 3..40 {
        state.take(Ok(sample(second, 300_000 + second * second * 1_000)));
    }
    is_golden("200x60.txt", &screen(&state, 200, 60, LOOK).0);
}

#[test]
fn screens_of_any_size_are_drawn() {
    for begin in [State::new, state] {
        for view in "12345?".chars() {
            let mut state = begin();
            press(&mut state, &view.to_string());
            for (width, height) in [(1, 1), (10, 3), (79, 5), (80, 12), (160, 13), (161, 40), (300, 100)] {
                screen(&state, width, height, LOOK);
            }
        }
    }
}

#[test]
fn a_router_that_is_gone_is_reported_over_what_it_said_last() {
    let mut state = state();
    state.take(Err("no router answers at 'SOCKET'".to_owned()));
    let (text, _) = screen(&state, 80, 24, LOOK);
    assert_eq!(text.lines().nth(1), Some("no router answers at 'SOCKET'; trying again"));
    assert!(text.contains("eth1"), "{text}");
    state.take(Ok(sample(3, 300_000)));
    assert!(!screen(&state, 80, 24, LOOK).0.contains("trying again"));
}

#[test]
fn colours_are_left_out_where_nobody_wants_them() {
    let colours = |has_colours| {
        let (text, backend) = screen(&state(), 200, 60, Look { has_colours, ..LOOK });
        (text, backend.buffer().content.iter().filter(|cell| cell.fg != Color::Reset).count())
    };
    let ((with, some), (without, none)) = (colours(true), colours(false));
    assert_eq!((with == without, some > 0, none), (true, true, 0));
}

#[test]
fn plain_tables_have_whole_numbers_and_no_empty_cells() {
    let text = plain([sample(0, 100_000), sample(2, 300_000)]);
    is_golden("once.txt", &text);
    let fields = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(fields("eth1 ")[..4], ["eth1", "100000", "80000000", "50000"]);
    assert_eq!(fields("slow").last().map(String::as_str), Some("-"));
}

#[test]
fn seconds_are_from_a_half_to_sixty() {
    assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
    assert_eq!(seconds("60"), Ok(Duration::from_secs(60)));
    for wrong in ["0.4", "61", "-1", "nan", "inf", "", "1s"] {
        assert!(seconds(wrong).is_err(), "{wrong}");
    }
}
