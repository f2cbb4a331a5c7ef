//! The picture `docs/first-minute.svg`: a router's first minute, typed into a terminal. `make docs` records it again, under a
//! pseudo-terminal (`script` of util-linux); a test checks that the picture has these commands.
//!
//! The picture moves by CSS alone, since pages run no scripts of pictures. Each piece of text appears when it did in the session, but
//! for long pauses. Where nothing moves it shows the last screen.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::netns::is_root;
use super::netns::router::{PROGRAM, between_hosts};

/// Who types what; a host's commands run in its namespace.
const TYPED: [(&str, &str); 5] = [
    ("router", "brickway doctor eth1 eth2"),
    ("router", "brickway run eth1 eth2 2>&1 | tee router.log &"),
    ("host", "ping -q -c 100 -i 0.02 10.0.2.2"),
    ("router", "brickway show ports"),
    ("router", "brickway show route 10.0.2.2"),
];

/// The size of the terminal, in characters.
const COLUMNS: usize = 88;
const ROWS: usize = 26;
/// The size of a character, in the picture's pixels.
const WIDE: f64 = 7.5;
const HIGH: usize = 17;
/// Between the frame and the characters, and above them for the title.
const MARGIN: usize = 14;
const TITLE: usize = 32;
/// The longest pause of the picture, in seconds.
const PAUSE: f64 = 2.5;
/// How long the last screen stays.
const LAST: f64 = 6.0;
/// Behind it the session is cleaned up, which is not shown.
const END: char = '\x1c';
/// The most bytes of the picture.
const MOST: usize = 100_000;

/// Text that appeared at once, in one line.
struct Piece {
    line: usize,
    column: usize,
    at: f64,
    text: String,
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/first-minute.svg")
}

#[test]
fn the_picture_of_the_first_minute_has_its_commands() {
    if std::env::var_os("BRICKWAY_UPDATE").is_some() && is_root() {
        let (output, timing) = record();
        std::fs::write(path(), draw(&pieces(&output, &timing))).unwrap();
    }
    let picture = std::fs::read_to_string(path()).unwrap();
    assert!(picture.len() < MOST, "{} bytes", picture.len());
    assert!(!picture.contains("<script"), "pages do not run scripts of pictures");
    // It is XML, and its texts of class c are the commands.
    let mut reader = quick_xml::Reader::from_str(&picture);
    let (mut typed, mut is_command) = (Vec::new(), false);
    loop {
        match reader.read_event().unwrap() {
            quick_xml::events::Event::Eof => break,
            quick_xml::events::Event::Start(start) => {
                let class = start.try_get_attribute("class").unwrap();
                is_command = class.is_some_and(|class| class.value.starts_with(b"c "));
                if is_command {
                    typed.push(String::new());
                }
            }
            quick_xml::events::Event::Text(text) if is_command => {
                typed.last_mut().unwrap().push_str(&text.decode().unwrap());
            }
            quick_xml::events::Event::GeneralRef(name) if is_command => {
                let character = match &name[..] {
                    b"gt" => '>',
                    b"lt" => '<',
                    _ => '&',
                };
                typed.last_mut().unwrap().push(character);
            }
            quick_xml::events::Event::End(_) => is_command = false,
            _ => {}
        }
    }
    let expected: Vec<&str> = TYPED.iter().map(|(_, command)| *command).collect();
    assert_eq!(typed, expected, "docs/first-minute.svg is of other commands; run 'make docs'");
}

/// Runs the session in namespaces made for it. Returns what the terminal showed, and when (a delay and a number of bytes a line).
fn record() -> (Vec<u8>, String) {
    let network = between_hosts();
    let folder = network.folder.path().display().to_string();
    let programs = Path::new(PROGRAM).parent().unwrap().display().to_string();
    let mut session = format!(
        "cd {folder}; export PATH={programs}:$PATH TERM=dumb LC_ALL=C; stty cols {COLUMNS} rows {ROWS}\n"
    );
    for (who, command) in TYPED {
        let typed = command.replace('\'', "'\\''");
        let _ = writeln!(session, "printf '{who}# '; sleep 0.8; echo '{typed}'; sleep 0.3");
        let place =
            if who == "host" { format!("ip netns exec {} ", network.name("a")) } else { String::new() };
        let _ = writeln!(session, "{place}{command}");
        if command.ends_with('&') {
            let _ = writeln!(session, "until brickway show ports > /dev/null 2>&1; do sleep 0.1; done");
        }
        // As long as one reads.
        let _ = writeln!(session, "sleep 2.5");
    }
    // The first process of the job is the router.
    let _ = writeln!(session, "printf '\\034'; kill $(jobs -p); wait");
    let file = network.folder.write("session.sh", session);
    let [output, timing] = ["output", "timing"].map(|name| format!("{folder}/{name}"));
    let script = format!("script -q -f -O {output} -T {timing} -m classic -c 'bash {file}'");
    let (is_done, printed) = network.script("r", &format!("timeout -s KILL 120 {script} < /dev/null"));
    assert!(is_done, "{printed}");
    (std::fs::read(output).unwrap(), std::fs::read_to_string(timing).unwrap())
}

/// Returns what stands where in the terminal, and since when.
fn pieces(output: &[u8], timing: &str) -> Vec<Piece> {
    // `script` writes a line of its own first.
    let begin = output.iter().position(|&byte| byte == b'\n').unwrap() + 1;
    let (mut rest, mut pieces) = (&output[begin..], Vec::<Piece>::new());
    let (mut line, mut column, mut at, mut is_escape) = (0, 0, 0.0, false);
    for entry in timing.lines() {
        let (delay, count) = entry.split_once(' ').unwrap();
        at += delay.parse::<f64>().unwrap().min(PAUSE);
        let (chunk, behind) = rest.split_at(count.trim().parse::<usize>().unwrap().min(rest.len()));
        rest = behind;
        // What a reader cannot tell apart appears at once.
        let at = (at * 10.0).round() / 10.0;
        for character in String::from_utf8_lossy(chunk).chars() {
            match character {
                END => return pieces,
                '\x1b' => is_escape = true,
                _ if is_escape => is_escape = !character.is_ascii_alphabetic(),
                '\r' => {}
                '\n' => (line, column) = (line + 1, 0),
                _ => {
                    if column == COLUMNS {
                        (line, column) = (line + 1, 0);
                    }
                    match pieces.last_mut() {
                        Some(piece) if piece.line == line && piece.at == at => piece.text.push(character),
                        _ => pieces.push(Piece { line, column, at, text: character.to_string() }),
                    }
                    column += 1;
                }
            }
        }
    }
    panic!("the session did not come to its end");
}

fn draw(pieces: &[Piece]) -> String {
    let text_wide = COLUMNS as f64 * WIDE;
    let (wide, high) = (text_wide + 2.0 * MARGIN as f64, TITLE + ROWS * HIGH + MARGIN);
    let all = pieces.last().unwrap().at + LAST;
    let part = |at: f64| 100.0 * at / all;
    // Lines above the first one that is seen, at each time.
    let hidden = |at: f64| {
        let lines = pieces.iter().filter(|piece| piece.at <= at).map(|piece| piece.line + 1).max();
        lines.unwrap_or(0).saturating_sub(ROWS) * HIGH
    };
    // In tenths of a second, which have an order.
    let times: BTreeSet<u64> = pieces.iter().map(|piece| (piece.at * 10.0) as u64).collect();
    let (mut style, mut scroll, mut before) = (String::new(), String::from("0%{transform:translateY(0)}"), 0);
    for &tenths in &times {
        let at = tenths as f64 / 10.0;
        let _ = writeln!(
            style,
            "@keyframes k{tenths}{{0%{{opacity:0}}{:.2}%{{opacity:1}}100%{{opacity:1}}}}",
            part(at)
        );
        let _ = writeln!(style, ".k{tenths}{{animation:k{tenths} {all:.1}s step-end infinite}}");
        let now = hidden(at);
        if now != before {
            let _ = write!(scroll, "{:.2}%{{transform:translateY(-{now}px)}}", part(at));
            before = now;
        }
    }
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {wide} {high}\" width=\"{wide}\" height=\"{high}\" role=\"img\" \
         aria-labelledby=\"title\">\n<title id=\"title\">The first minute of a router, in a terminal</title>\n<style>\n\
         text{{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;font-size:12.4px;\
         fill:#e6edf3;white-space:pre}}\n.p{{fill:#3fb950}}\n.c{{fill:#79c0ff}}\n.h{{font-family:system-ui,'DejaVu Sans',\
         sans-serif;fill:#9da7b3}}\n{style}\
         @keyframes scroll{{{scroll}100%{{transform:translateY(-{before}px)}}}}\n\
         .s{{transform:translateY(-{before}px);animation:scroll {all:.1}s step-end infinite}}\n\
         @media (prefers-reduced-motion:reduce){{.s,.s text{{animation:none}}}}\n</style>\n\
         <rect x=\"0.5\" y=\"0.5\" width=\"{}\" height=\"{}\" rx=\"8\" fill=\"#0d1117\" stroke=\"#30363d\"/>\n\
         <text class=\"h\" x=\"{MARGIN}\" y=\"21\">a router between two hosts; recorded, long pauses shortened</text>\n\
         <svg x=\"{MARGIN}\" y=\"{TITLE}\" width=\"{text_wide}\" height=\"{}\">\n<g class=\"s\">\n",
        wide - 1.0,
        high - 1,
        ROWS * HIGH,
    );
    let prompts: Vec<String> = TYPED.iter().map(|(who, _)| format!("{who}# ")).collect();
    for (number, piece) in pieces.iter().enumerate() {
        let is_prompt = |piece: &Piece| piece.column == 0 && prompts.contains(&piece.text);
        let follows = number
            .checked_sub(1)
            .is_some_and(|above| is_prompt(&pieces[above]) && pieces[above].line == piece.line);
        let class = if is_prompt(piece) {
            "p "
        } else if follows {
            "c "
        } else {
            ""
        };
        let text = piece.text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let _ = writeln!(
            svg,
            "<text class=\"{class}k{}\" x=\"{}\" y=\"{}\" textLength=\"{}\" lengthAdjust=\"spacingAndGlyphs\">{text}</text>",
            (piece.at * 10.0) as u64,
            piece.column as f64 * WIDE,
            piece.line * HIGH + 13,
            piece.text.chars().count() as f64 * WIDE,
        );
    }
    svg + "</g>\n</svg>\n</svg>\n"
}
