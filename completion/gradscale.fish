# Completion of gradscale for fish. The program tells its words: gradscale [COMMAND...] --help=words

function __gradscale_lines
    set -l commands
    for word in (commandline -opc)[2..-1]
        string match -q -- '-*' $word; and break
        set -a commands $word
    end
    gradscale $commands --help=words 2>/dev/null; or gradscale $commands[1] --help=words 2>/dev/null
end

function __gradscale_words
    set -l before (commandline -opc)[-1]
    for line in (__gradscale_lines)
        set -l parts (string split \t -- $line)
        if test "$parts[1]" = "$before"; and string match -q -- '*|*' $parts[2]
            string split '|' -- $parts[2]
            return
        end
    end
    for line in (__gradscale_lines)
        set -l parts (string split \t -- $line)
        printf '%s\t%s\n' $parts[1] $parts[3]
    end
end

complete -c gradscale -a '(__gradscale_words)'
