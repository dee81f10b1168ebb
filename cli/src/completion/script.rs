//! The scripts of the shells that ask this binary.

use clap::ValueEnum;

/// Shells that ask for what may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scripted {
    /// bash 4.4 and newer.
    Bash,
    /// zsh.
    Zsh,
    /// fish.
    Fish,
}

/// bash takes words apart at `=` and `:`, which options and addresses have; they are put together again, and of what
/// follows only the part that bash replaces is handed over.
const BASH: &str = r#"_tidegate() {
    local rest="${COMP_LINE:0:COMP_POINT}" words=() part trimmed line index word
    for ((index = 0; index <= COMP_CWORD; index++)); do
        part="${COMP_WORDS[index]}"
        ((index == COMP_CWORD)) && part="$2"
        trimmed="${rest#"${rest%%[![:space:]]*}"}"
        if ((index > 0)) && [[ $trimmed == "$rest" ]]; then
            words[${#words[@]} - 1]+="$part"
        else
            words+=("$part")
        fi
        rest="${trimmed#"$part"}"
    done
    word="${words[${#words[@]} - 1]}"
    COMPREPLY=()
    while IFS= read -r line; do
        line="${line%%$'\t'*}"
        COMPREPLY+=("${line#"${word%"$2"}"}")
    done < <("$1" complete -- "${words[@]}" 2>/dev/null)
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=/] ]]; then
        compopt -o nospace 2>/dev/null
    fi
}
complete -F _tidegate -o bashdefault tidegate
"#;

const ZSH: &str = r#"#compdef tidegate
_tidegate() {
    local line value about
    local -a plain described
    for line in "${(@f)$("${words[1]}" complete -- "${(@Q)words[1,CURRENT]}" 2>/dev/null)}"; do
        [[ -n $line ]] || continue
        value="${line%%$'\t'*}"
        about="${line#*$'\t'}"
        if [[ $line == *$'\t'* ]]; then
            described+=("${value//:/\\:}:$about")
        else
            plain+=("$value")
        fi
    done
    (( $#described )) && _describe tidegate described
    (( $#plain )) && compadd -Q -- "${plain[@]}"
    (( $#described + $#plain )) || _files
}
if [ "$funcstack[1]" = _tidegate ]; then
    _tidegate "$@"
else
    compdef _tidegate tidegate
fi
"#;

const FISH: &str = r#"function __tidegate_complete
    set -l words (commandline -opc)
    set -l current (commandline -ct)
    $words[1] complete -- $words "$current" 2>/dev/null
end
complete -c tidegate -f -a '(__tidegate_complete)'
"#;

/// The script of a shell.
pub(crate) fn script(shell: Scripted) -> &'static str {
    match shell {
        Scripted::Bash => BASH,
        Scripted::Zsh => ZSH,
        Scripted::Fish => FISH,
    }
}
