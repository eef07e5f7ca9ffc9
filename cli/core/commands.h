/* commands.h: the subcommands. A row here and a file cli/NAME/NAME.c make one. */
#ifndef COMMANDS_H
#define COMMANDS_H

/* Order of `gradscale --help`. The second column is its line there. */
#define COMMANDS(X)                                                                  \
    X(train, "train a model in mixed precision")                                     \
    X(eval, "measure a trained model on data")                                       \
    X(predict, "apply a trained model to images or text, as CSV or JSON")            \
    X(generate, "let a trained GPT go on with a text")                               \
    X(tokenize, "train a tokenizer; text into tokens and back")                      \
    X(export, "write a model for other programs: safetensors, ONNX")                 \
    X(compare, "train in several precisions: what underflows, what to use")          \
    X(report, "make an HTML page of the logs of runs")                               \
    X(advise, "say which loss scale the gradients in files need")                    \
    X(replay, "run traces of loss scalers; ask what other policies would have done") \
    X(presets, "show the presets of the scaler and their parameters")                \
    X(info, "show the CPU, the kernels in use and the number formats")               \
    X(device, "list devices; compare one with the CPU, bit for bit")                 \
    X(bench, "measure kernels against limits of this machine")

/* argv[0..argc) are the words after the command's name. Returns the exit code. */
#define X(name, summary) int cmd_##name(int argc, char **argv);
COMMANDS(X)
#undef X

#endif
