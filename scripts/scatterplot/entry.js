export {
  BufferAttribute, BufferGeometry, Color, GLSL3, LinearSRGBColorSpace, Matrix4, MOUSE, OrthographicCamera, PerspectiveCamera, Points, Scene,
  ShaderMaterial, TOUCH, Vector3, WebGLRenderer,
} from "three";
export { OrbitControls } from "three/examples/jsm/controls/OrbitControls.js";
