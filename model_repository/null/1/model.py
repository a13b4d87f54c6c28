import numpy as np, sys
import triton_python_backend_utils as p
class TritonPythonModel:
    def initialize(self, args):
        print(args.keys(), np.__version__, sys.path, flush=True)
    def execute(self, requests):
        import time; time.sleep(0.01)
        out=[]
        for r in requests:
            x=p.get_input_tensor_by_name(r,"input_ids").as_numpy()
            out.append(p.InferenceResponse([p.Tensor("sentence_embedding", np.ones((x.shape[0],384),np.float32))]))
        return out
