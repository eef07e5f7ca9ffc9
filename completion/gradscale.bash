# Completion of gradscale for bash. The program tells its words: gradscale [COMMAND...] --help=words

_gradscale()
{
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}
    local -a commands=()
    local i line value words
    for ((i = 1; i < COMP_CWORD; i++)); do # those that stand before the first option
        [[ ${COMP_WORDS[i]} == -* ]] && break
        commands+=("${COMP_WORDS[i]}")
    done
    words=$("${COMP_WORDS[0]}" "${commands[@]}" --help=words 2>/dev/null) ||
        words=$("${COMP_WORDS[0]}" "${commands[0]}" --help=words 2>/dev/null)
    line=$(grep -m 1 "^$before"$'\t' <<<"$words")
    value=$(cut -f 2 <<<"$line")
    if [[ $before == --* && $value == *"|"* ]]; then
        COMPREPLY=($(compgen -W "${value//|/ }" -- "$word"))
    elif [[ $before == --* && -n $value ]]; then
        [[ $before == --scaler ]] && COMPREPLY=($(compgen -W "$("${COMP_WORDS[0]}" presets --parameters |
            sed '1,2d; s/ .*//') headroom guard none" -- "$word"))
        [[ ${#COMPREPLY[@]} -gt 0 ]] || COMPREPLY=($(compgen -f -- "$word"))
    else
        COMPREPLY=($(compgen -W "$(cut -f 1 <<<"$words")" -- "$word"))
        [[ ${#COMPREPLY[@]} -gt 0 || $word == -* ]] || COMPREPLY=($(compgen -f -- "$word"))
    fi
}
complete -o filenames -F _gradscale gradscale
