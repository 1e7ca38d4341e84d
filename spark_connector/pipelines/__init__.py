"""The pipelines: each a function, and a command of `kumquat-spark`.

A pipeline's module has the function under its own name, `add_arguments(parser)` for the options of
its command, and `run(spark, args) -> Summary`, which calls the function with them. `args.progress`
is a `Progress`; what a pipeline says while it runs goes there.
"""
