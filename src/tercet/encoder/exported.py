"""An encoder that runs through ONNX Runtime or OpenVINO."""
from tercet.encoder.encoder import Encoder
EXPORT_FILE = "exported.json"
class Exported(Encoder): pass
