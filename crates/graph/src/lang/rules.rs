//! The rules of the language that implementations get wrong, each with the examples that show it; the messages; and
//! properties over made-up configurations.

use super::testing::{Table, compiled, connections, elements, errors, run, source};
use super::{Library, Options, PortKind, Source, compile, compile_with_library};
use proptest::prelude::*;

// Rule 1: one pass.

#[test]
fn elements_and_classes_are_declared_before_use() {
    assert_eq!(errors("b :: Idle;\na -> b; a :: Idle;"), ["2: undeclared element 'a'"]);
    assert_eq!(errors("x :: Foo;\nelementclass Foo { -> Null -> }"), ["1: unknown element class 'Foo'"]);
    let (_, diagnostics) = run("b :: Idle;\na -> b;\na :: Idle;");
    let text = diagnostics.render(false);
    assert!(
        text.contains("declare 'a' earlier") && text.contains("test.click:3: 'a' declared here"),
        "{text}"
    );
}

#[test]
fn an_unknown_name_is_reported_once() {
    assert_eq!(errors("foo -> Discard; foo -> Discard; foo -> bar;").len(), 2);
    assert_eq!(
        errors("a :: Foo; b :: Foo; Foo(x) -> Discard; a -> Counter -> b;"),
        ["1: unknown element class 'Foo'"]
    );
}

// Rule 2: the names of anonymous elements.

#[test]
fn anonymous_elements_count_all_elements_of_the_scope() {
    let flat = compiled("a :: Idle; Idle -> Null -> Discard; Message(x)");
    assert_eq!(
        elements(&flat),
        ["a :: Idle", "Idle@2 :: Idle", "Null@3 :: Null", "Discard@4 :: Discard", "Message@5 :: Message(x)"]
    );
}

#[test]
fn a_clash_of_names_is_resolved_at_the_end_of_the_scope() {
    let flat = compiled("Message(1); Message@1, Message@2 :: Message(2); Message(3);");
    assert_eq!(
        elements(&flat),
        [
            "Message@3 :: Message(1)",
            "Message@1 :: Message(2)",
            "Message@2 :: Message(2)",
            "Message@4 :: Message(3)"
        ]
    );
}

#[test]
fn a_group_takes_three_numbers_and_comes_before_its_stage() {
    let flat = compiled("Idle -> ( -> Null -> ) -> Discard;");
    assert_eq!(elements(&flat), ["Idle@1 :: Idle", "Null@5 :: Null", "Discard@6 :: Discard"]);
    // The group and its members are there before the other elements of the same stage.
    let flat = compiled("i :: Idle => Null, ( -> Paint(1) -> ) -> Discard;");
    assert_eq!(
        elements(&flat),
        ["i :: Idle", "Paint@5 :: Paint(1)", "Null@6 :: Null", "Discard@7 :: Discard"]
    );
}

#[test]
fn numbers_in_compound_elements_start_again() {
    let flat =
        compiled("elementclass F { $a | DriverManager($a); } elementclass G { $a, $b | F($b); } G(1, stop);");
    assert_eq!(elements(&flat), ["G@1/F@1/DriverManager@1 :: DriverManager(stop)"]);
    let flat = compiled("Idle -> { -> Null -> } -> Discard;");
    assert_eq!(elements(&flat), ["Idle@1 :: Idle", "Discard@3 :: Discard", "@2/Null@1 :: Null"]);
}

// Rule 3: lists of names.

#[test]
fn a_declaration_declares_all_names_and_a_connection_only_the_last() {
    let flat = compiled("a, b :: Message(x);");
    assert_eq!(elements(&flat), ["a :: Message(x)", "b :: Message(x)"]);
    let flat = compiled("a :: Idle; a, b :: Idle -> d :: Discard;");
    assert_eq!(connections(&flat), ["a -> d", "b -> d"]);
    assert_eq!(errors("a, b :: Idle -> Discard;"), ["1: undeclared element 'a'"]);
}

// Rule 4: arrows and port lists.

#[test]
fn commas_connect_many_to_one_and_one_to_many() {
    let flat =
        compiled("a, b, c :: Idle; p, q :: PullNull; a, a[1] -> b -> p, q; p -> [0]c, [1]c; q -> [2]c;");
    assert_eq!(
        connections(&flat),
        ["a -> b", "a [1] -> b", "b -> p", "b -> q", "p -> [1] c", "p -> c", "q -> [2] c"]
    );
}

#[test]
fn many_to_many_needs_the_double_arrow() {
    let text = "a, b :: Idle;\na [0,1,2] -> [0,1,2] b;";
    assert_eq!(errors(text), ["2: syntax error: many-to-many connections require '=>'"]);
    let flat = compiled("a, b :: Idle; a [0-2] => [0,1,2] b;");
    assert_eq!(connections(&flat), ["a -> b", "a [1] -> [1] b", "a [2] -> [2] b"]);
    let flat = compiled("a, b, c :: Idle; a => b, c, [0,1] a;");
    assert_eq!(connections(&flat), ["a -> b", "a [1] -> c", "a [2] -> a", "a [3] -> [1] a"]);
}

#[test]
fn open_port_lists_grow_to_fit() {
    let flat = compiled("a, b, c :: Idle; a [] => b, c, [1] c;");
    assert_eq!(connections(&flat), ["a -> b", "a [1] -> c", "a [2] -> [1] c"]);
    let flat = compiled("a, b, c :: Idle; a -> b; a [1-] => c, [1] c; b [0,] -> [1] b;");
    assert_eq!(connections(&flat), ["a -> b", "a [1] -> c", "a [2] -> [1] c", "b -> [1] b"]);
}

#[test]
fn port_lists_that_do_not_fit() {
    let text = "a, b, c, d :: Idle;\na [0,1] => [0,1,2] b;\nc [] => [] d;";
    assert_eq!(
        errors(text),
        [
            "2: connection mismatch: 2 outputs connected to 3 inputs",
            "3: at most one expandable port allowed per connection"
        ]
    );
    assert_eq!(
        errors("a :: Idle; [0] a -> a [0]"),
        ["1: input ports ignored at start of chain", "1: output ports ignored at end of chain"]
    );
    assert_eq!(errors("a :: Idle; a [x] -> a"), ["1: syntax error: port number should be integer"]);
    assert_eq!(errors("a :: Idle; a [99999] -> a"), ["1: port number 99999 too large"]);
}

// Rule 5: groups.

#[test]
fn groups_imply_all_their_ports() {
    for text in [
        "a, b, c, d :: Idle; a [0,1,2] => ( -> c ), ( -> b ), d;",
        "a, b, c, d :: Idle; a [0,1,2] => c, b, d;",
        "a, d :: Idle; a => (-> c :: Idle), (-> b :: Idle), d;",
    ] {
        assert_eq!(connections(&compiled(text)), ["a -> c", "a [1] -> b", "a [2] -> d"], "{text}");
    }
    for text in ["x -> y;", "x -> ( input -> output ) -> y;", "x -> ( [0] -> [0] ) -> y;", "x -> (->) -> y;"]
    {
        let flat = compiled(&format!("x, y :: Idle; {text}"));
        assert_eq!(connections(&flat), ["x -> y"], "{text}");
    }
    let both = compiled("x, y :: Idle; x => ( [0]->[0]; [1]->[1] ) => ( [0]->[0]; [1]->[1] ) -> y;");
    assert_eq!(connections(&both), ["x -> y", "x [1] -> y"]);
}

#[test]
fn groups_share_the_scope_and_compounds_do_not() {
    let flat = compiled("c :: Idle; x :: Idle -> ( -> d :: Null -> c ); Idle -> [1] c; d2 :: Idle -> [2] c;");
    assert!(flat.find("d").is_some());
    let errors = errors("x :: Idle -> { -> d :: Null -> Discard };\nd -> Discard;");
    assert_eq!(errors, ["2: undeclared element 'd'"]);
}

#[test]
fn groups_and_compounds_mix() {
    let flat = compiled(
        "analyzer, x1, x2 :: Idle; x1 -> analyzer -> x2;\n\
         c :: Idle => [1] analyzer [1], foo :: { -> c2 :: Idle => (->), Paint(1) -> } -> post :: Idle;",
    );
    assert_eq!(
        connections(&flat),
        [
            "analyzer -> x2",
            "analyzer [1] -> post",
            "c -> [1] analyzer",
            "c [1] -> foo/c2",
            "foo/Paint@5 -> post",
            "foo/c2 -> post",
            "foo/c2 [1] -> foo/Paint@5",
            "x1 -> analyzer"
        ]
    );
    let flat = compiled("a, b :: Idle; a -> { -> } -> b; a [1] -> { [0] -> [0] } -> [1] b;");
    assert_eq!(connections(&flat), ["a -> b", "a [1] -> [1] b"]);
}

#[test]
fn wrong_ports_of_groups_and_compounds() {
    assert_eq!(errors("Idle -> ( [1] -> Discard );"), ["1: '<anonymous group>' input 0 missing"]);
    assert_eq!(
        errors("x :: { input -> Discard };\nIdle -> Null -> x; Idle -> [1] x;"),
        ["1: 'x' has no input 1"]
    );
    assert_eq!(
        errors("x :: { input -> Discard; input [1] -> Discard };\nIdle -> x;"),
        ["1: 'x' input 1 unused"]
    );
    assert_eq!(
        errors("elementclass A { Idle -> input; }"),
        ["1: 'A' pseudoelement 'input' may only be used as output"]
    );
    assert_eq!(errors("->Null;"), ["1: syntax error near '->'"]);
}

#[test]
fn circles_without_elements_end() {
    assert_eq!(connections(&compiled("g :: { -> }; g -> g;")), Vec::<String>::new());
    let flat = compiled("i :: Idle; a :: { [0] -> [0]; [1] -> [1] }; i -> a -> [1] a [1] -> i;");
    assert_eq!(connections(&flat), ["i -> i"]);
}

// Rule 6: overloads and the scope of classes.

#[test]
fn the_first_definition_that_fits_is_taken() {
    let flat = compiled(
        "elementclass Foo { $a, $b | input -> Print(1) -> output || $a, __REST__ $b | input -> Print(2) -> output\n\
         || $a, TWO $b, __REST__ $c | input -> Print(3) -> output }\n\
         Idle -> Foo(A) -> f :: Foo(A, TWO B)\n\
         elementclass Foo { $a, $b | input -> Print(4) -> output || ... }\n\
         f -> Foo(A, B) -> Foo(A, B, C) -> Discard",
    );
    assert_eq!(
        elements(&flat)[2..],
        [
            "Foo@2/Print@1 :: Print(2)",
            "f/Print@1 :: Print(1)",
            "Foo@4/Print@1 :: Print(4)",
            "Foo@5/Print@1 :: Print(2)"
        ]
    );
    assert_eq!(flat.flat_text().lines().last(), Some("    -> Discard@6;"));
}

#[test]
fn definitions_differ_by_ports_too() {
    let text =
        "elementclass F { -> Print(1) -> || [0] -> Print(2) -> [0]; [1] -> Discard } Idle -> F -> x :: Idle;";
    assert_eq!(elements(&compiled(text))[2], "F@2/Print@1 :: Print(1)");
    let text = format!("{text} y :: Idle; y -> f :: F -> Discard; Idle -> [1] f;");
    assert!(elements(&compiled(&text)).iter().any(|e| e == "f/Print@1 :: Print(2)"));
}

#[test]
fn definitions_differ_by_outputs_alone() {
    let text = "elementclass F { [0] -> Print(1) -> Discard || -> Print(2) -> } Idle -> a :: F; Idle -> b :: F -> Discard";
    let flat = compiled(text);
    let config = |name: &str| flat.find(name).map(|e| flat.elements[e].config.as_str());
    assert_eq!((config("a/Print@1"), config("b/Print@1")), (Some("1"), Some("2")));
}

#[test]
fn a_class_does_not_see_itself() {
    let flat = compiled("elementclass Null { -> Null -> Print(x) -> } Idle -> n :: Null -> Discard;");
    assert_eq!(elements(&flat)[2..], ["n/Null@1 :: Null", "n/Print@2 :: Print(x)"]);
    assert_eq!(
        errors("elementclass A { A(1); } A(1);"),
        ["1: unknown element class 'A'", "1: no match for 'A[1 argument, 0 inputs, 0 outputs]'"]
    );
}

#[test]
fn an_extension_falls_back_to_the_older_class() {
    let text = "elementclass Print { $a, $b | -> Print($a) -> Print($b) -> || ... } Idle -> Print(1) -> p :: Print(2, 3) \
        -> Discard";
    let flat = compiled(text);
    assert_eq!(
        elements(&flat)[1..],
        ["Print@2 :: Print(1)", "Discard@4 :: Discard", "p/Print@1 :: Print(2)", "p/Print@2 :: Print(3)"]
    );
    let text = "elementclass T { $a | Message($a) }\nt :: T(1, 2);\nelementclass T { $a, $b | || ... }";
    assert_eq!(errors(text), ["2: no match for 'T[2 arguments, 0 inputs, 0 outputs]'"]);
    let errors = errors("elementclass New { -> || ... }");
    assert_eq!(errors, ["1: cannot extend unknown element class 'New'"]);
}

#[test]
fn class_names_are_lexical_and_synonyms_are_the_class() {
    assert_eq!(
        errors("elementclass A { elementclass B { Message(1) } B; }\nA;\nB(1);"),
        ["3: unknown element class 'B'"]
    );
    assert_eq!(
        elements(&compiled("elementclass M Message; x :: M(1); M(2)")),
        ["x :: Message(1)", "M@2 :: Message(2)"]
    );
}

// Rule 7: formals.

#[test]
fn positional_keyword_and_rest_parameters() {
    let text = "elementclass C { $a, COUNT $count, __REST__ $rest | Message($a/$count/$rest) } C(1, 2, COUNT 3, FOO 4);";
    assert_eq!(elements(&compiled(text)), ["C@1/Message@1 :: Message(1/3/2, FOO 4)"]);
    for (text, used) in [("A(1)", "1 argument"), ("A(1, 2, 3)", "3 arguments")] {
        let text = format!("elementclass A {{ $a, $b | Message($a) }} {text};");
        assert_eq!(errors(&text), [format!("1: no match for 'A[{used}, 0 inputs, 0 outputs]'")]);
    }
    assert_eq!(errors("elementclass A { COUNT $c | Message($c) } A(1);").len(), 1);
    assert_eq!(
        errors("elementclass A { K $c, $d | } elementclass B { $a, $a | }"),
        ["1: compound element parameters out of order", "1: parameter '$a' multiply defined"]
    );
}

#[test]
fn formals_are_lexical() {
    let text = "elementclass Foo { $a | elementclass Bar { $b | DriverManager($a); }\n\
        elementclass Baz { $a | Message(x); Bar($a); } Baz(inner); } Foo(stop);";
    assert_eq!(
        elements(&compiled(text)),
        ["Foo@1/Baz@1/Message@1 :: Message(x)", "Foo@1/Baz@1/Bar@2/DriverManager@1 :: DriverManager(stop)"]
    );
}

// Rule 8: variables.

#[test]
fn definitions_hold_in_the_whole_scope() {
    assert_eq!(
        elements(&compiled("Message($a $b ${c-4} '$a' \"$d\"); define($a 2, $d 'x \"y')")),
        ["Message@1 :: Message(2 $b 4 '$a' \"'x \\\"y'\")"]
    );
    assert_eq!(
        elements(&compiled("define($a 1) { define($a 2) Message($a) }; Message($a)"))[..2],
        ["Message@2 :: Message(1)", "@1/Message@1 :: Message(2)"]
    );
    assert_eq!(errors("define($a 1)\ndefine($a 2)"), ["2: parameter '$a' multiply defined"]);
    assert_eq!(errors("define(a 1)"), ["1: bad 'define' declaration: not a variable"]);
}

#[test]
fn the_command_line_overrides() {
    let parameters = vec![("a".into(), "9".into()), ("new".into(), "8".into())];
    let options = Options { parameters, ..Options::default() };
    let (flat, diagnostics) = compile(&source("define($a 1) Message($a $new)"), &options, &Table);
    assert!(diagnostics.is_empty());
    assert_eq!(flat.expect("no errors").elements[0].config, "9 8");
}

#[test]
fn indexed_variables() {
    let text = "elementclass Bar { $a, $n | Message(\"${a[$n]}\") } elementclass Baz { $a | Bar(${a[1]} ${a[0]}, ${a[2]}) }\n\
        Bar(D E F, 2); Baz(G H 1)";
    assert_eq!(
        elements(&compiled(text)),
        ["Bar@1/Message@1 :: Message(\"F\")", "Baz@2/Bar@1/Message@1 :: Message(\"G\")"]
    );
}

// Rule 9: connections and ports.

#[test]
fn equal_connections_are_one_and_active_ports_are_used_once() {
    let flat = compiled("i :: InfiniteSource -> d :: Discard; i -> d;");
    assert_eq!(connections(&flat), ["i -> d"]);
    assert_eq!(
        errors("i::InfiniteSource -> Print -> d::Discard;\ni -> Print -> d;"),
        ["1: illegal reuse of 'i :: InfiniteSource' push output 0"]
    );
    assert_eq!(
        errors("i::InfiniteSource -> Print -> d::Discard;\nInfiniteSource -> p::Print;"),
        ["2: 'p :: Print' output 0 unused"]
    );
    assert_eq!(
        errors("a, b :: Idle -> q :: Queue;\nr :: Queue; q -> t :: ToDevice(x); Idle -> r -> t"),
        ["1: undeclared element 'a'", "2: illegal reuse of 't :: ToDevice' pull input 0"]
    );
    compiled("InfiniteSource -> Print -> d::Discard; InfiniteSource -> Print -> d;");
}

#[test]
fn ports_that_a_class_does_not_have() {
    let (_, diagnostics) = run("Idle -> c :: Counter -> Discard; Idle -> [1] c;");
    let text = diagnostics.render(false);
    assert!(text.starts_with("test.click:1: 'c :: Counter' has no input 1\n"), "{text}");
    assert!(text.contains("help: it takes 1 input, numbered 0"), "{text}");
    assert_eq!(diagnostics.error_count(), 1);
}

#[test]
fn an_error_in_a_class_is_reported_once() {
    let text = "elementclass A { Idle -> Counter; }\nA; A; A;";
    assert_eq!(errors(text), ["1: 'A@1/Counter@2 :: Counter' output 0 unused"]);
}

// Rule 10: push and pull.

fn kinds(text: &str, element: &str) -> (Vec<PortKind>, Vec<PortKind>) {
    let flat = compiled(text);
    let element = &flat.elements[flat.find(element).expect("the element exists")];
    (element.input_kinds.clone(), element.output_kinds.clone())
}

#[test]
fn agnostic_ports_take_over_push_or_pull() {
    use PortKind::{Pull, Push};
    assert_eq!(kinds("InfiniteSource -> c :: Counter -> Discard", "c"), (vec![Push], vec![Push]));
    let pull = "Idle -> Queue -> a :: Counter -> b :: Null -> ToDevice(x)";
    assert_eq!(kinds(pull, "a"), (vec![Pull], vec![Pull]));
    assert_eq!(kinds(pull, "b"), (vec![Pull], vec![Pull]));
    // Nothing decides: push.
    assert_eq!(kinds("Idle -> c :: Counter -> Discard", "c"), (vec![Push], vec![Push]));
    // The flow code keeps the ports apart.
    let text = "InfiniteSource -> s :: Suppressor -> Discard; Idle -> Queue -> [1] s [1] -> ToDevice(x)";
    assert_eq!(kinds(text, "s"), (vec![Push, Pull], vec![Push, Pull]));
}

#[test]
fn push_and_pull_conflicts() {
    assert_eq!(
        errors("InfiniteSource -> t :: ToDevice(x)"),
        ["1: 'InfiniteSource@1 :: InfiniteSource' push output 0 connected to 't :: ToDevice' pull input 0"]
    );
    assert_eq!(
        errors("Idle -> q :: Queue -> p :: PushNull -> Discard"),
        ["1: 'q :: Queue' pull output 0 connected to 'p :: PushNull' push input 0"]
    );
    assert_eq!(errors("i :: InfiniteSource -> Counter -> Counter -> ToDevice(x)").len(), 1);
    assert_eq!(errors("InfiniteSource -> n :: Null -> ToDevice(x)").len(), 1);
}

// Rule 11: everything is reported.

#[test]
fn five_mistakes_give_five_errors() {
    let text = "src :: InfiniteSource(LIMIT 5);\n\
                cnt :: Conter;\n\
                src -> cnt -> q :: Queue(100);\n\
                q -> [1] p :: Print(x) -> ToDevice(eth0);\n\
                InfiniteSource -> ToDevice(eth1);\n\
                q2 :: Idle -> Queue -> q3;\n\
                Idle -> cnt2 :: Counter;\n";
    let (flat, diagnostics) = run(text);
    assert!(flat.is_some());
    assert_eq!(
        errors(text),
        [
            "2: unknown element class 'Conter'",
            "4: 'p :: Print' has no input 1",
            "5: 'InfiniteSource@6 :: InfiniteSource' push output 0 connected to 'ToDevice@7 :: ToDevice' pull input 0",
            "6: undeclared element 'q3'",
            "7: 'cnt2 :: Counter' output 0 unused",
        ],
        "{}",
        diagnostics.render(false)
    );
}

#[test]
fn unknown_things_make_no_further_noise() {
    assert_eq!(
        errors("InfiniteSource -> x :: Foo -> ToDevice(x); Idle -> [3] x;"),
        ["1: unknown element class 'Foo'"]
    );
    assert_eq!(errors("a :: Idle;\na :: Counter -> Discard;"), ["2: redeclaration of element 'a'"]);
    assert_eq!(errors("Counter :: Counter;"), ["1: class 'Counter' used as element name"]);
    assert_eq!(errors("c :: Counter;\nIdle -> c -> -> Discard;").len(), 1);
    assert_eq!(
        errors("c :: Counter;\nIdle -> c ->;\nDiscard;"),
        ["2: syntax error near ';'", "3: 'Discard@3 :: Discard' input 0 unused"]
    );
    assert_eq!(
        errors("c :: Counter"),
        ["1: 'c :: Counter' input 0 unused", "1: 'c :: Counter' output 0 unused"]
    );
    assert_eq!(errors("1 :: Message(x)"), ["1: element name '1' has all-digit component"]);
    assert_eq!(errors("a :: Idle(;"), ["1: expected ')'"]);
    let open = "2: the comment that begins here is not closed";
    for comment in ["/*", "/* Idle -> Discard;", "/*/"] {
        assert_eq!(errors(&format!("/**/ Idle -> Discard;\n{comment}")), [open]);
    }
    assert_eq!(errors("elementclass A {\n -> Null -> "), ["2: expected '}'"]);
}

// Rule 12: configuration strings and the flat text.

#[test]
fn configuration_strings_are_kept_verbatim() {
    let config = " /* a */ 1,  \"x)\" // end\n , 'y' ";
    let flat = compiled(&format!("m :: Message({config}); n :: {{ Message({config}) }};"));
    assert_eq!(flat.elements[0].config, config);
    assert_eq!(flat.elements[1].config, config);
    assert!(flat.flat_text().contains(&format!("m :: Message({config});\n")));
    assert_eq!(compiled(r#"m :: Message("\\");"#).flat_text(), "m :: Message(\"\\\\\");\n\n");
}

#[test]
fn members_of_compounds_follow_the_top_level() {
    let text = "elementclass B { Message(3) } elementclass A { Message(1); b :: B; Message(2) } x :: A; Message(0); y :: B";
    assert_eq!(
        elements(&compiled(text)),
        [
            "Message@2 :: Message(0)",
            "x/Message@1 :: Message(1)",
            "x/Message@3 :: Message(2)",
            "x/b/Message@1 :: Message(3)",
            "y/Message@1 :: Message(3)"
        ]
    );
}

// Rule 13: line directives.

#[test]
fn line_directives_hold_in_configuration_strings() {
    let flat = compiled("m :: Message(\n# 100 \"foobar.click\"\n\"test\");\nm2 :: Message(\"test2\");\n");
    assert_eq!(flat.elements[0].location.to_string(), "test.click:1");
    assert_eq!(flat.elements[0].config, "\n\n\"test\"");
    assert_eq!(flat.elements[1].location.to_string(), "foobar.click:101");
    let (_, diagnostics) = run("#line 7 \"gen.click\"\nfoo -> bar;\n# 1 \"\"\n#bad\n");
    let text = diagnostics.render(false);
    assert!(text.contains("gen.click:7: undeclared element 'foo'"), "{text}");
    assert!(text.contains("test.click:1: unknown preprocessor directive"), "{text}");
}

// Libraries and requirements.

struct Two;

impl Library for Two {
    fn open(&self, name: &str, _from: &str) -> Option<Source> {
        let text = match name {
            "a.click" => "require(library b.click) elementclass A { B }",
            "b.click" => "require(library a.click) elementclass B { Message(b) } oops -> oops;",
            _ => return None,
        };
        Some(Source { name: name.to_string(), text: text.to_string() })
    }
}

#[test]
fn libraries_are_read_once_and_keep_their_locations() {
    let text = "require(library a.click, library b.click); x :: A; require(library none)";
    let (flat, diagnostics) = compile_with_library(&source(text), &Options::default(), &Table, &Two);
    assert!(flat.expect("usable").find("x/B@1/Message@1").is_some());
    let text = diagnostics.render(false);
    assert!(text.contains("b.click:1: undeclared element 'oops'"), "{text}");
    assert!(text.contains("test.click:1: library 'none' not found in CLICKPATH/conf"), "{text}");
    assert_eq!(diagnostics.error_count(), 2, "{text}");
}

// Limits.

#[test]
fn nesting_and_growth_are_bounded() {
    for (open, close) in [("{", "}"), ("(", ")"), ("x :: {", "}")] {
        let text = format!("{}{}", open.repeat(5000), close.repeat(5000));
        let errors = errors(&text);
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].contains("nesting depth exceeded"));
    }
    let mut text = String::from("elementclass C0 { Message(x) }\n");
    for i in 1..60 {
        text.push_str(&format!("elementclass C{i} {{ C{0}; C{0}; }}\n", i - 1));
    }
    assert_eq!(errors(&format!("{text}C30;")), ["1: configuration becomes too large"]);
    let mut text = String::from("elementclass C0 { Message(x) }\n");
    for i in 1..2000 {
        text.push_str(&format!("elementclass C{i} {{ C{}; }}\n", i - 1));
    }
    assert_eq!(errors(&format!("{text}C1999;")).len(), 1);
    let wide = "([16383] -> [16383]);".repeat(2000);
    assert!(!errors(&wide).is_empty());
    let listed = "a[0-16383],".repeat(2000);
    assert!(!errors(&format!("a :: Idle; {listed} a -> a;")).is_empty());
}

// Properties.

/// Statements that are right, alone and together; `#` becomes the number of the statement.
const STATEMENTS: &[&str] = &[
    "m# :: Message(",
    "Idle -> Counter -> Discard",
    "Idle => (-> Null ->), Paint(1) -> Discard",
    "InfiniteSource -> Queue(5) -> { -> Print(x) -> } -> ToDevice(eth0)",
    "i# :: Idle; i# [0-2] => Null, Null, { $x | -> Paint($x) -> } (3) -> Discard",
    "elementclass Message { $a, $b | Message($b, $a) || ... } Message(1, 2)",
    "define($x# 5, $y# \"a b\") Message($x#, \"$y#\")",
    "require(package p)",
    "Message@1#, Message@3# :: Message($x#, '$y')",
    "c# :: Idle; c# -> c# -> c#; c# [1] -> [1] c#",
    "Idle -> Tee => Discard, (-> Discard)",
    "Idle -> Queue -> s# :: Suppressor -> ToDevice(a); InfiniteSource -> [1] s# [1] -> Discard",
    "o# :: { $a | -> Null -> Print($a) -> || KEY $a | -> n :: { -> Paint($a) -> } -> } (KEY 3); Idle -> o# -> Discard",
];

/// Configurations without mistakes.
fn configurations() -> impl Strategy<Value = String> {
    let statement =
        (prop::sample::select(STATEMENTS), "[a-z ,0-9$\\n]{0,6}|\"[a-z,)(/]{0,5}\"|'[a-z,)(/]{0,5}'");
    proptest::collection::vec(statement, 0..8).prop_map(|all| {
        let numbered = all.iter().enumerate().map(|(number, (statement, config))| {
            let statement = statement.replace('#', &number.to_string());
            if statement.ends_with('(') { format!("{statement}{config})") } else { statement }
        });
        numbered.collect::<Vec<_>>().join(";\n")
    })
}

proptest! {
    #[test]
    fn printing_and_compiling_again_changes_nothing(text in configurations()) {
        let flat = compiled(&text);
        let printed = flat.flat_text();
        let again = compiled(&printed);
        prop_assert_eq!(elements(&again), elements(&flat));
        prop_assert_eq!(connections(&again), connections(&flat));
        prop_assert_eq!(&again.requirements, &flat.requirements);
        prop_assert_eq!(again.flat_text(), printed);
        for (a, b) in again.elements.iter().zip(&flat.elements) {
            prop_assert_eq!(&a.input_kinds, &b.input_kinds);
            prop_assert_eq!(&a.output_kinds, &b.output_kinds);
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in any::<String>()) {
        let _ = run(&text).1.render(true);
    }

    #[test]
    fn no_sequence_of_tokens_makes_it_panic(tokens in proptest::collection::vec(token(), 0..60)) {
        let (flat, diagnostics) = run(&tokens.join(" "));
        let _ = diagnostics.render(false);
        if let Some(flat) = flat {
            let _ = flat.to_dot();
            let _ = run(&flat.flat_text());
        }
    }

    #[test]
    fn no_damage_to_a_configuration_makes_it_panic(
        text in configurations(),
        at in any::<prop::sample::Index>(),
        with in "[-\\[\\](){}:;,>=|.$#\"'/\\\\a0\n]{0,3}",
        gone in 0usize..4,
    ) {
        let mut chars: Vec<char> = text.chars().collect();
        let start = at.index(chars.len() + 1);
        let end = (start + gone).min(chars.len());
        chars.splice(start..end, with.chars());
        let text: String = chars.into_iter().collect();
        let (flat, diagnostics) = run(&text);
        let _ = diagnostics.render(false);
        if let Some(flat) = flat {
            let _ = flat.flat_text();
        }
    }
}

fn token() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "a",
        "b",
        "c",
        "input",
        "output",
        "Idle",
        "Counter",
        "Tee",
        "Foo",
        "::",
        "->",
        "=>",
        ",",
        ";",
        "(",
        ")",
        "{",
        "}",
        "[",
        "]",
        "0",
        "1",
        "-",
        "|",
        "||",
        "...",
        "$a",
        "$b",
        "elementclass",
        "define",
        "require",
        "provide",
        "(x)",
        "($a 1)",
        "\n# 3 \"f\"\n",
        "//\n",
        "/*",
        "*/",
        "\"",
        "'",
        "[0-3]",
        "[1-]",
        "[]",
        "KEY",
        "__REST__",
        "é",
    ])
}
