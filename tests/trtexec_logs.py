"""Logs in the format trtexec prints, levels and stamps included; the figures in them are made up."""

from __future__ import annotations

BUILT = """\
&&&& RUNNING TensorRT.trtexec [TensorRT v100500] [b18] # trtexec --onnx=model.onnx --saveEngine=e.plan --fp16 --verbose
[11/30/2026-10:00:00] [I] TF32 is enabled by default. Add --noTF32 flag to further improve accuracy.
[11/30/2026-10:00:00] [I] === Model Options ===
[11/30/2026-10:00:00] [I] Format: ONNX
[11/30/2026-10:00:00] [I] === Build Options ===
[11/30/2026-10:00:00] [I] Precision: FP32+FP16
[11/30/2026-10:00:01] [I] Selected Device: NVIDIA Test GPU
[11/30/2026-10:00:01] [I] TensorRT version: 10.5.0
[11/30/2026-10:00:04] [I] Start parsing network model.
[11/30/2026-10:00:05] [W] [TRT] ModelImporter.cpp:420: Make sure input input_ids has Int64 binding.
[11/30/2026-10:00:05] [W] [TRT] ModelImporter.cpp:420: Make sure input input_ids has Int64 binding.
[11/30/2026-10:00:05] [I] Finished parsing network model. Parse time: 0.75
[11/30/2026-10:00:06] [V] [TRT] *************** Autotuning format combination: Half(1) -> Half(1) ***************
[11/30/2026-10:00:06] [V] [TRT] --------------- Timing Runner: node_linear (Gemm)
[11/30/2026-10:00:07] [V] [TRT] --------------- Timing Runner: node_linear (Myelin)
[11/30/2026-10:00:40] [I] [TRT] Engine generation completed in 35.25 seconds.
[11/30/2026-10:00:40] [I] Engine built in 36.5 sec.
[11/30/2026-10:00:40] [I] Created engine with size: 1.5 MiB
[11/30/2026-10:00:41] [I] Starting inference
[11/30/2026-10:00:44] [I] Average on 10 runs - GPU latency: 99.5 ms - Host latency: 99.75 ms (enqueue 0.5 ms)
[11/30/2026-10:00:44] [I] === Performance summary ===
[11/30/2026-10:00:44] [I] Throughput: 123.25 qps
[11/30/2026-10:00:44] [I] Latency: min = 8.125 ms, max = 9.5 ms, mean = 8.75 ms, median = 8.625 ms, \
percentile(90%) = 9 ms, percentile(95%) = 9.25 ms, percentile(99%) = 9.375 ms
[11/30/2026-10:00:44] [I] Enqueue Time: min = 0.25 ms, max = 1 ms, mean = 0.5 ms, median = 0.5 ms, \
percentile(90%) = 0.5 ms, percentile(95%) = 0.75 ms, percentile(99%) = 0.875 ms
[11/30/2026-10:00:44] [I] GPU Compute Time: min = 7.875 ms, max = 8.5 ms, mean = 8.0625 ms, median = 8 ms, \
percentile(90%) = 8.125 ms, percentile(95%) = 8.25 ms, percentile(99%) = 8.375 ms
[11/30/2026-10:00:44] [I] Total Host Walltime: 3.25 s
[11/30/2026-10:00:44] [I] Total GPU Compute Time: 3.125 s
[11/30/2026-10:00:44] [W] * GPU compute time is unstable, with coefficient of variance = 2.5%.
[11/30/2026-10:00:44] [I]
[11/30/2026-10:00:44] [V] GPU Compute Time: the GPU latency to execute the kernels for a query.
&&&& PASSED TensorRT.trtexec [TensorRT v100500] [b18] # trtexec --onnx=model.onnx --saveEngine=e.plan --fp16 --verbose
"""

FAILED = """\
&&&& RUNNING TensorRT.trtexec [TensorRT v110100] [b106] # trtexec --onnx=model.onnx --saveEngine=model.plan
[11/30/2026-10:00:01] [I] TensorRT version: 11.1.0
[11/30/2026-10:00:02] [E] [TRT] ITensor::getDimensions: Error Code 4: API Usage Error (types Half and Float differ)
[11/30/2026-10:00:02] [E] Failed to parse onnx file
[11/30/2026-10:00:02] [E] Engine set up failed
&&&& FAILED TensorRT.trtexec [TensorRT v110100] [b106] # trtexec --onnx=model.onnx --saveEngine=model.plan
"""

NO_MODEL = """\
&&&& RUNNING TensorRT.trtexec [TensorRT v101303] [b9] # trtexec --version
[11/30/2026-10:00:01] [E] Model missing or format not recognized
&&&& FAILED TensorRT.trtexec [TensorRT v101303] [b9] # trtexec --version
"""
