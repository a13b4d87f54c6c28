"""Serving: model repository, servers, statistics.

    from workbook.serving.encoder_spec import EncoderOptions, e5_onnx_spec, null_spec
    from workbook.serving.repository import assemble_repository
    from workbook.serving.server import ServerOptions, start_server

    spec = e5_onnx_spec(EncoderOptions(exported.hidden_size, threads=2), backend="embedded")
    weights = {file.name: file for file in exported.files}
    repository = assemble_repository(run / "repository", [(spec, weights), (null_spec(), {})], "embedded")
    with start_server("embedded", repository, log_file=run / "triton.log") as server:
        before = server.statistics("e5_onnx")
        ...  # requests to server.grpc_url or server.http_url ("host:port")
        delta = server.statistics("e5_onnx", settled=True) - before
        delta.queue_ms, delta.execution_infer_ms, delta.mean_batch_size

`start_server(kind, repository, *, models, options, log_file)` takes `auto`, `embedded`, `container` or
`remote:HOST:GRPC_PORT[:HTTP_PORT[:METRICS_PORT]]`. The handle has `http_url`, `grpc_url`, `metrics_url`, `models`,
`pid`, `log_file`, `server_info`, `statistics(model)`, `model_config(model)`, `log_tail(lines)`, `is_alive()`,
`check_alive()`, `explain_failure(error)`, `cpu_seconds()`, `load_model(name)`, `unload_model(name)`, `stop()`. Leaving
the `with` block, an exception, Ctrl-C, SIGTERM or the end of this process in any other way stops the server and removes
what it left.

`workbook.serving.server_environment.prepare()` completes the environment of the embedded server; `make setup` calls it.
"""
