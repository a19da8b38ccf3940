"""`Builder`: an ONNX model, node by node; tensors are their names."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from populus.dialects.support.diagnostics import PopulusError, did_you_mean
from populus.dialects.support.output_files import replacing
from populus.popart.opsets import GraphcoreOpset, MlOpset, Opset, attribute
from populus.popart.overloads import overloaded
from populus.popart.placement import Placement
from populus.popart.tensor_info import TensorInfo
from populus.popart.variables import GROUPED, VariableSettings

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

    from populus.popart.translation import Translation

VERSIONS = range(6, 12)
DEFAULT = 10  # the opset of ai.onnx where none is chosen. Source: PopART


class Builder(Placement):
    """A model that grows. `aiOnnx.<op>(inputs, ..)` adds a node of ONNX, `aiGraphcore.<op>` one of PopART's own, `customOp` one of yours.

    `modelProtoOrFilename`: a model to go on from. `opsets`: versions by domain. Raises PopulusError.
    """

    def __init__(
        self,
        modelProtoOrFilename: bytes | str | None = None,
        opsets: Mapping[str, int] | None = None,
        builderCore: Builder | None = None,
    ) -> None:
        from onnx import GraphProto

        self._graph = GraphProto(name="popart")
        parent = self._parent = builderCore  # the builder of the graph around
        self._domains: dict[str, int] = {} if parent is None else parent._domains
        self._known: set[str] = set()
        self._used: set[str] = set() if parent is None else parent._used
        self._scopes: list[str] = []
        super().__init__([] if parent is None else parent._inside)
        self._types: tuple[int, Translation] | None = None
        self._pieces: list[GraphProto] = []  # for graphs whose nodes are read when this one is complete
        if opsets and "ai.onnx" in opsets:
            self._domains[""] = int(opsets["ai.onnx"])
        if modelProtoOrFilename is not None:
            self._read(modelProtoOrFilename)

    def _read(self, given: bytes | str) -> None:
        from onnx import ModelProto

        from populus.lowering.onnx.importer.read import read_model

        model = ModelProto.FromString(given) if isinstance(given, bytes) else read_model(given)
        self._graph.CopyFrom(model.graph)
        self._domains.update({"" if o.domain == "ai.onnx" else o.domain: o.version for o in model.opset_import})
        names = [*(i.name for i in self._graph.input), *(i.name for i in self._graph.initializer)]
        self._known.update(names, *(n.output for n in self._graph.node))
        self._used.update(self._known)

    # -- ops ----------------------------------------------------------------------------------------------------------

    @property
    def aiOnnx(self) -> Opset:
        """The ops of the opset that the model has, or of the default one."""
        return self.opset_of(self._domains.get("", DEFAULT))

    @property
    def aiGraphcore(self) -> GraphcoreOpset:
        """PopART's own ops."""
        return GraphcoreOpset(self, 1)

    aiGraphcoreOpset1 = aiGraphcore

    def opset_of(self, version: int) -> Opset:
        """Gives the ops of an opset, which the model then has. Raises PopulusError for one that is not known, and RuntimeError for two."""
        if version not in VERSIONS and version != self._domains.get(""):
            raise PopulusError(f"there is no opset {version} of ai.onnx here; {VERSIONS[0]} to {VERSIONS[-1]} are known")
        if self._domains.setdefault("", version) != version:
            raise RuntimeError(f"Invalid opset 'aiOnnxOpset{version}' selected: the model has ai.onnx {self._domains['']} already")
        return Opset(self, version)

    def aiOnnxOpsetVersion(self, version: int) -> None:
        """Chooses the opset of `aiOnnx`. Raises ValueError for one that there is not."""
        if version not in VERSIONS:
            raise ValueError(f"there is no opset {version} of ai.onnx here; {VERSIONS[0]} to {VERSIONS[-1]} are known")
        self._domains[""] = version

    @property
    def aiOnnxMlOpset1(self) -> MlOpset:
        """The ops of classic machine learning."""
        return MlOpset(self, 1)

    aiOnnxMl = aiOnnxMlOpset1

    def __getattr__(self, name: str) -> Any:
        if name.startswith("aiOnnxOpset") and name[11:].isdigit():
            return self.opset_of(int(name[11:]))
        raise AttributeError(f"Builder has no member '{name}'{did_you_mean(name, dir(self))}")

    def customOp(
        self,
        opName: str,
        opVersion: int,
        domain: str,
        inputs: Sequence[str],
        attributes: Mapping[str, Any] | None = None,
        numOutputs: int = 1,
        name: str = "",
    ) -> list[str]:
        """Gives the outputs of a node of a domain of yours.

        Raises PopulusError for an input that is no tensor of this builder, and for a domain in two versions.
        """
        domain = "" if domain == "ai.onnx" else domain
        given = {n: v for n, v in ((n, attribute(opName, n, v)) for n, v in (attributes or {}).items()) if v is not None}
        return self.node(opName, domain, opVersion, inputs, numOutputs, given, name)

    def node(
        self, op: str, domain: str, version: int, inputs: Sequence[str], count: int, attributes: Mapping[str, Any], context: str = ""
    ) -> list[str]:
        """Gives the outputs of a new node. Raises PopulusError for an input that there is not, and for a domain in two versions."""
        from onnx import AttributeProto
        from onnx.helper import make_node

        if strange := [i for i in inputs if i and not self._sees(i)]:
            raise PopulusError(f"{op}: there is no tensor '{strange[0]}'{did_you_mean(strange[0], self._used)}")
        if self._domains.setdefault(domain, version) != version:
            raise PopulusError(f"{op}: the model has version {self._domains[domain]} of '{domain}' already, not {version}")
        outputs = self._outputs(op, count, context)
        given = {n: v for n, v in attributes.items() if v != []}
        made = make_node(op, list(inputs), outputs, context or None, domain=domain or None, **given)
        made.attribute.extend(AttributeProto(name=n, type=AttributeProto.INTS) for n in attributes if n not in given)
        self._graph.node.append(made)
        return outputs

    def _outputs(self, op: str, count: int, context: str) -> list[str]:
        """Names for what a node gives, placed where the contexts around it say."""
        outputs = [self._name("/".join((*self._scopes, *([context] if context else []), f"{op}:{i}"))) for i in range(count)]
        for kind, number in self._inside:
            self._said.update({(kind, o): number for o in outputs})
        return outputs

    def _sees(self, name: str) -> bool:
        return name in self._known or (self._parent is not None and self._parent._sees(name))

    def reshape_const(self, aiOnnx: Opset, args: Sequence[str], shape: Sequence[int], debugContext: str = "") -> str:
        """Gives a tensor in another shape, which is a constant."""
        import numpy as np

        return aiOnnx.reshape([args[0], aiOnnx.constant(np.array(shape, np.int64), debugContext=f"{debugContext}_const")], debugContext)

    # -- tensors ------------------------------------------------------------------------------------------------------

    @overloaded(
        "tensorInfo debugContext", "dataType shape debugContext", "tensorInfo settings debugContext", "dataType shape settings debugContext"
    )
    def addInputTensor(self, given: Mapping[str, Any]) -> str:
        """Gives a new input; its name. Takes a `TensorInfo`, or a type and a shape; then a name for it."""
        from onnx.helper import make_tensor_value_info

        values = list(given.values())
        info = values[0] if isinstance(values[0], TensorInfo) else TensorInfo(values[0], values[1])
        context = next((v for v in values[1:] if isinstance(v, str)), "")
        name = self._name("/".join((*self._scopes, context or "input")))
        self._graph.input.append(make_tensor_value_info(name, info.type, info.shape()))
        return name

    def addUntypedInputTensor(self, debugContext: str = "") -> str:
        """Gives a new input whose type follows from what it is given; its name."""
        from onnx import ValueInfoProto

        name = self._name("/".join((*self._scopes, debugContext or "input")))
        self._graph.input.append(ValueInfoProto(name=name))
        return name

    def addInputTensorFromParentGraph(self, tensorId: str) -> None:
        """States that this graph reads a tensor of the graph around it. Raises PopulusError if there is none of this name."""
        from onnx import ValueInfoProto

        if self._parent is None or not self._parent._sees(tensorId):
            raise PopulusError(f"there is no tensor '{tensorId}' in the graph around this one")
        self._graph.input.append(ValueInfoProto(name=tensorId))
        self._known.add(tensorId)

    @overloaded("initVal debugContext", "initVal variableSettings debugContext", "initVal debugPrefix")
    def addInitializedInputTensor(self, given: Mapping[str, Any]) -> str:
        """Gives a weight; its name. Takes the array, and a name for it."""
        import numpy as np
        from onnx import numpy_helper

        values = list(given.values())
        context = next((v for v in values[1:] if isinstance(v, str)), "")
        name = self._name("/".join((*self._scopes, context or "init_input")))
        tensor = numpy_helper.from_array(np.ascontiguousarray(values[0]).reshape(np.shape(values[0])), name)
        settings = next((v for v in values[1:] if isinstance(v, VariableSettings)), None)
        if settings is not None and not (settings.isUsingCommGroup() and settings.getCommGroupType().name == "All"):
            tensor.doc_string = GROUPED
        self._graph.initializer.append(tensor)
        return name

    def addOutputTensor(self, outputName: str) -> None:
        """Makes a tensor an output. Raises PopulusError if there is none of this name."""
        from onnx import ValueInfoProto

        if not self._sees(outputName):
            raise PopulusError(f"there is no tensor '{outputName}'{did_you_mean(outputName, self._used)}")
        self._graph.output.append(ValueInfoProto(name=outputName))

    def _name(self, stem: str) -> str:
        number = 0
        while (found := f"{stem}/{number}" if number else stem) in self._used:
            number += 1
        self._used.add(found)
        self._known.add(found)
        return found

    @contextmanager
    def nameScope(self, name: str) -> Generator[None]:
        """Names of what is added inside begin with this."""
        self._scopes.append(name)
        try:
            yield
        finally:
            self._scopes.pop()

    def getNameScope(self, name: str = "") -> str:
        """Gives the name with the scopes around it."""
        return "/".join((*self._scopes, name))

    # -- graphs -------------------------------------------------------------------------------------------------------

    def setGraphName(self, name: str) -> None:
        """Names the graph."""
        self._graph.name = name

    def createSubgraphBuilder(self) -> Builder:
        """Gives a builder of a graph that a node of this one holds; it sees this one's tensors."""
        return Builder(builderCore=self)

    def graph_proto(self) -> GraphProto:
        """Gives the graph as ONNX has it. An output that belongs to a graph around it goes through an Identity."""
        return self._graph

    def getModelProto(self) -> bytes:
        """Gives the model as ONNX has it in files."""
        return self.model().SerializeToString()

    def saveModelProto(self, filename: str) -> None:
        """Writes the model to a file."""
        with replacing(filename) as partial:
            partial.write_bytes(self.model().SerializeToString())

    def model(self) -> ModelProto:
        """Gives the model. Outputs have their types as far as they are known."""
        from onnx.helper import make_model, make_opsetid

        opsets = [make_opsetid(domain, version) for domain, version in {"": DEFAULT, **self._domains}.items()]
        return make_model(self._graph, opset_imports=opsets, ir_version=10)

    # -- what is known of tensors -------------------------------------------------------------------------------------

    def _translated(self) -> Translation:
        """Gives the types of tensors, found again when nodes were added. Raises PopulusError."""
        from populus.popart.rules import PopartTranslation

        count = len(self._graph.node) + len(self._graph.input)
        if self._types is None or self._types[0] != count:
            outer = None if self._parent is None else self._parent._translated()
            self._types = (count, PopartTranslation.of(self.model(), outer))
        return self._types[1]

    def getTensorShape(self, id: str) -> list[int]:
        """Gives the shape of a tensor. Raises PopulusError if there is none of this name."""
        return list(self._translated().type_of(id).shape)

    def getTensorDtypeString(self, id: str) -> str:
        """Gives the element type of a tensor, in NumPy's spelling. Raises PopulusError if there is none of this name."""
        return self._translated().type_of(id).dtype.name

    def getInputTensorIds(self) -> list[str]:
        """Gives the names of inputs and weights."""
        return [*(i.name for i in self._graph.input), *(i.name for i in self._graph.initializer)]

    def getTrainableTensorIds(self) -> list[str]:
        """Gives the names of weights."""
        return [i.name for i in self._graph.initializer]

    def getOutputTensorIds(self) -> list[str]:
        """Gives the names of outputs."""
        return [o.name for o in self._graph.output]

    def getValueTensorIds(self) -> list[str]:
        """Gives the names of what nodes give and is no output."""
        outputs = set(self.getOutputTensorIds())
        return [o for n in self._graph.node for o in n.output if o not in outputs]

    def isInitializer(self, id: str) -> bool:
        """Tells whether a tensor is a weight."""
        return any(i.name == id for i in self._graph.initializer)

    # -- attributes of nodes ------------------------------------------------------------------------------------------

    def _node_of(self, outputs: Any) -> NodeProto:
        names = {outputs} if isinstance(outputs, str) else set(cast("Sequence[str]", outputs))
        for node in self._graph.node:
            if names & set(node.output):
                return node
        raise PopulusError(f"no node gives {', '.join(sorted(names))}")

    def addNodeAttribute(self, attributeName: str, attributeValue: Any, nodeOutputNames: Any) -> None:
        """Gives the node of these outputs an attribute. Raises PopulusError if there is no such node."""
        from onnx import AttributeProto
        from onnx.helper import make_attribute

        value = attribute("", attributeName, attributeValue)
        made = AttributeProto(name=attributeName, type=AttributeProto.INTS) if value is None else make_attribute(attributeName, value)
        self._node_of(nodeOutputNames).attribute.append(made)

    def nodeHasAttribute(self, attributeName: str, nodeOutputNames: Any) -> bool:
        """Tells whether the node of these outputs has an attribute."""
        return attributeName in self.getAllNodeAttributeNames(nodeOutputNames)

    def getAllNodeAttributeNames(self, nodeOutputNames: Any) -> list[str]:
        """Gives the names of the attributes of the node of these outputs."""
        return [a.name for a in self._node_of(nodeOutputNames).attribute]

    def removeNodeAttribute(self, attributeName: str, nodeOutputNames: Any) -> None:
        """Takes an attribute from the node of these outputs. Raises PopulusError if it has none of this name."""
        node = self._node_of(nodeOutputNames)
        kept = [a for a in node.attribute if a.name != attributeName]
        if len(kept) == len(node.attribute):
            raise PopulusError(f"the node {node.op_type} has no attribute '{attributeName}'")
        del node.attribute[:]
        node.attribute.extend(kept)

    def _attribute(self, attributeName: str, nodeOutputNames: Any) -> Any:
        from onnx.helper import get_attribute_value

        for a in self._node_of(nodeOutputNames).attribute:
            if a.name == attributeName:
                value = get_attribute_value(a)
                return value.decode() if isinstance(value, bytes) else value
        raise PopulusError(f"the node {self._node_of(nodeOutputNames).op_type} has no attribute '{attributeName}'")

    getInt64NodeAttribute = getInt64VectorNodeAttribute = getFloatNodeAttribute = getFloatVectorNodeAttribute = _attribute
    getStringNodeAttribute = getStringVectorNodeAttribute = _attribute


for _version in VERSIONS:
    setattr(Builder, f"aiOnnxOpset{_version}", property(partial(Builder.opset_of, version=_version)))
